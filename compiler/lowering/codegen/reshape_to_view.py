"""`ReshapesAsViews`: replace kernels that only reshape by views of the same memory.

    before   b = call_tir(reshape, (a,), (1, n * m, 288))

    after    b = reshape(a, (1, n * m, 288))       the virtual machine changes the descriptor only

TVM recognizes such kernels by their loops, before scheduling and only with static extents.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import tvm
from tvm import relax, tirx

from schedules.dynamic_rows import symbols_of, with_extents

from ...ir.constants import integers
from ...primfuncs.fusion_pattern import callee
from ..offloaded_functions import call_counts

VIEW = "baton.view"
"""Attribute of kernels that do nothing but copy their operand in another shape."""

_OPERATORS = ("reshape", "squeeze", "expand_dims")
_EXTENTS = (7, 11, 13, 17, 19, 23)
_MOST_ELEMENTS = 2**31 - 1  # TVM's analysis counts them in int32


def is_reshape(kernel: tirx.PrimFunc, operators: Sequence[str]) -> bool:
    """Whether an unscheduled kernel of these operators copies elements in row-major order."""
    if len(operators) != 1 or operators[0] not in _OPERATORS:
        return False
    symbols = symbols_of(kernel)
    tensors = [param for param in kernel.params if isinstance(param.ty, tirx.BufferType)]
    if len(symbols) > len(_EXTENTS) or len(tensors) != 2:
        return False
    if symbols:
        kernel = tirx.PrimFunc(tensors, kernel.body, kernel.ret_type)
        kernel = with_extents(kernel, list(zip(symbols, _EXTENTS)))
    buffers = [param.ty for param in kernel.params if isinstance(param.ty, tirx.BufferType)]
    shapes = [integers(buffer.shape) for buffer in buffers]
    counts = {_MOST_ELEMENTS + 1 if shape is None else math.prod(shape) for shape in shapes}
    if len(counts) > 1 or max(counts) > _MOST_ELEMENTS:
        return False
    return bool(relax.analysis.has_reshape_pattern(kernel))


@tvm.transform.module_pass(opt_level=0, name="ReshapesAsViews")
class ReshapesAsViews:
    """Replace calls of kernels that are marked with `VIEW` by views.

    A result of the function stays a copy, because callers own it. `dropped`: saved calls per
    inference, by kernel, once the pass has run.
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        times = call_counts(mod)
        functions = dict(mod.functions_items())
        for gvar, function in mod.functions_items():
            if not isinstance(function, relax.Function):
                continue
            blocks = [
                self._viewed(mod, block, times[gvar.name_hint]) for block in function.body.blocks
            ]
            functions[gvar] = relax.Function(
                function.params,
                relax.SeqExpr(blocks, function.body.body),
                function.ret_ty,
                function.is_pure,
                function.attrs,
            )
        if not self.dropped:
            return mod
        viewed = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(viewed))

    def _viewed(
        self, mod: tvm.IRModule, block: relax.BindingBlock, times: int
    ) -> relax.BindingBlock:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            kernel = callee(mod, value)
            is_view = kernel is not None and VIEW in (kernel.attrs or {})
            if is_view and isinstance(binding.var, relax.DataflowVar):
                self.dropped[str(value.args[0].name_hint)] += times
                view = relax.op.reshape(value.args[1].fields[0], value.ty.shape)
                binding = relax.VarBinding(binding.var, view)
            bindings.append(binding)
        return type(block)(bindings)
