"""Keep kernels from fusing if they take extents that none of their tensors has.

    a = shape_to_tensor(n)                 # (1,)
    y = add(x, a)                          # (min(100, m),)

FuseTIR of TVM 0.27 adds n and m twice to the fused function if they are not extents of a separate
tensor, and then fails because a variable is redefined.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from schedules.tir_visit import nodes_of

from ..primfuncs.fusion_pattern import OPAQUE, callee, op_pattern, with_pattern


def separate_scalar_operands(mod: tvm.IRModule) -> tvm.IRModule:
    """Give such calls a pattern that prevents fusion."""
    return with_pattern(mod, _calls, OPAQUE)


def _calls(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    found = []
    for binding in (each for block in function.body.blocks for each in block.bindings):
        kernel = callee(mod, binding.value)
        if kernel is None or op_pattern(kernel) == OPAQUE:
            continue
        operands = binding.value.args[1].fields
        scalars = _symbols([each for each in operands if tvm.ir.is_prim_expr(each)])
        tensors = [each.ty for each in operands if not tvm.ir.is_prim_expr(each)]
        if scalars - _symbols([*tensors, binding.var.ty]):
            found.append(binding.value)
    return found


def _symbols(nodes: list[Any]) -> set[Any]:
    return {var for node in nodes for var in nodes_of(node, tirx.Var)}
