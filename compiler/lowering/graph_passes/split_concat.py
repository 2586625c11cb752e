"""Split concatenations of many tensors, whose kernels TVM can't compile.

    before   concat(a0, .., a3999)                               a condition within a condition ..
    after    concat(concat(a0, .., a127), concat(a128, ..), ..)

A kernel that concatenates n tensors nests n conditions, and its entry nests the checks of n
arguments. TVM and Python walk both recursively.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...ir.rewrite import CallRule, rewrite_calls
from ...primfuncs.fusion_pattern import OPAQUE, callee, with_pattern

# 500 tensors of rank 1 exceed Python's default recursion limit, 4,000 the default stack of 8 MiB.
MAX_PARTS = 128
"""Tensors that one kernel concatenates."""


def split_concatenations(mod: tvm.IRModule) -> tvm.IRModule:
    """Concatenate, or stack, more than `MAX_PARTS` tensors in groups."""
    return rewrite_calls(mod, _Split)


class _Split(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in ("concat", "stack"):
            return None
        whole = self.scope.definition(call.args[0])
        if not isinstance(whole, relax.Tuple) or len(whole.fields) <= MAX_PARTS:
            return None
        parts, axis = list(whole.fields[:]), call.attrs.axis
        axis = None if axis is None else int(axis)
        if name == "stack":
            axis = axis or 0
            axis += (axis < 0) * (int(parts[0].ty.ndim) + 1)
            parts = [self.scope.emit(relax.op.expand_dims(part, axis)) for part in parts]
        while len(parts) > MAX_PARTS:
            parts = self._grouped(parts, axis)
        return relax.op.concat(parts, axis)

    def _grouped(self, parts: list[Any], axis: int | None) -> list[Any]:
        """Concatenate full groups; returns their results and the remaining tensors."""
        full = len(parts) - len(parts) % MAX_PARTS
        groups = [parts[start : start + MAX_PARTS] for start in range(0, full, MAX_PARTS)]
        return [self.scope.emit(relax.op.concat(group, axis)) for group in groups] + parts[full:]


def separate_groups(mod: tvm.IRModule) -> tvm.IRModule:
    """Give kernels of full groups a pattern that is not fused: FuseOps would join them again.

    Parameters
    ----------
    mod : tvm.IRModule
        Calls of TIR functions that have their operator patterns. It is not changed.
    """
    return with_pattern(mod, _full_groups, OPAQUE)


def _full_groups(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    return [
        binding.value
        for block in function.body.blocks
        for binding in block.bindings
        if callee(mod, binding.value) is not None
        and str(binding.value.args[0].name_hint).startswith("concatenate")
        and len(binding.value.args[1].fields) >= MAX_PARTS
    ]
