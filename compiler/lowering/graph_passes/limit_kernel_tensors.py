"""Concatenate and split many tensors in groups, because the cost of one kernel is not linear.

    before   concat(a0, .., a3999)
    after    concat(concat(a0, .., a127), concat(a128, ..), ..)

    before   split(x, 500 sections)
    after    parts = split(x, 16 sections), split(parts.0, 32 sections), ..

A kernel that concatenates n tensors nests n conditions, and its entry nests the checks of n
arguments. TVM and Python walk both recursively. Fused with a concatenation, each result of a split
is a stage to inline, and TVM walks all stages for each of them.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import tvm
from tvm import relax, tirx

from ...ir.rewrite import CallRule, rewrite_calls
from ...primfuncs.fusion_pattern import OPAQUE, callee, with_pattern
from ...primfuncs.kernel_operators import operators_of

# 500 tensors of rank 1 exceed Python's default recursion limit, 4,000 the default stack of 8 MiB.
# LLVM compiles 100 tensors in one kernel in 20 s, in kernels of 32 in 3 s (AMD EPYC with AVX2).
MAX_PARTS = 32
"""Tensors that one kernel concatenates."""
# 24 images of a split batch, each brought to blocks of channels in the same kernel: 2.2 s and 82 KB
# of code; 8 images: 0.6 s and 35 KB (AMD EPYC with AVX-512).
MAX_FUSED_IMAGES = 15
"""Images that one kernel concatenates along with the operators that compute them."""
# 120 results fused with one concatenation took 9 s to schedule on an AMD EPYC with AVX2, 32 take
# less than 1 s.
MAX_RESULTS = 32
"""Results of a split in one kernel."""


def limit_kernel_tensors(mod: tvm.IRModule) -> tvm.IRModule:
    """Concatenate, stack and split tensors in groups where one kernel would have too many."""
    return rewrite_calls(mod, _Grouping)


class _Grouping(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name == "split":
            return self._split(call)
        return self._concatenate(call, name) if name in ("concat", "stack") else None

    def _concatenate(self, call: relax.Call, name: str) -> relax.Expr | None:
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

    def _split(self, call: relax.Call) -> relax.Expr | None:
        axis = int(call.attrs.axis)
        extents = [field.shape.values[axis] for field in call.ty.fields if field.shape]
        if len(extents) <= MAX_RESULTS or not all(isinstance(n, tirx.IntImm) for n in extents):
            return None
        starts = [0, *accumulate(int(extent) for extent in extents)]
        return relax.Tuple(self._results(call.args[0], starts, axis))

    def _results(self, data: relax.Expr, starts: list[int], axis: int) -> list[relax.Expr]:
        """Split `data` between `starts`, which also has the end of the last result."""
        step = 1
        while len(starts) > MAX_RESULTS * step + 1:
            step *= MAX_RESULTS
        bounds = [*starts[:-1:step], starts[-1]]
        indices = [bound - starts[0] for bound in bounds[1:-1]]
        whole = self.scope.emit(relax.op.split(data, indices, axis))
        parts = [self.scope.emit(relax.TupleGetItem(whole, i)) for i in range(len(bounds) - 1)]
        if step == 1:
            return parts
        groups = [starts[first : first + step + 1] for first in range(0, len(starts) - 1, step)]
        return [
            result
            for part, group in zip(parts, groups, strict=True)
            for result in (self._results(part, group, axis) if len(group) > 2 else [part])
        ]


def separate_groups(mod: tvm.IRModule) -> tvm.IRModule:
    """Give kernels of full groups a pattern that is not fused: FuseOps would join them again."""
    return with_pattern(mod, _full_groups, OPAQUE)


def _full_groups(mod: tvm.IRModule, function: relax.Function) -> list[relax.Call]:
    return [
        binding.value
        for block in function.body.blocks
        for binding in block.bindings
        if (kernel := callee(mod, binding.value)) is not None and _is_full(binding, kernel)
    ]


def _is_full(binding: relax.VarBinding, kernel: tirx.PrimFunc) -> bool:
    ty, parts = binding.var.ty, len(binding.value.args[1].fields)
    if parts >= MAX_PARTS or (parts > MAX_FUSED_IMAGES and getattr(ty, "ndim", 0) > 3):
        operator = "concatenate"
    elif isinstance(ty, relax.TupleType) and len(ty.fields) >= MAX_RESULTS:
        operator = "split"
    else:
        return False
    return operators_of(str(binding.value.args[0].name_hint), kernel) == [operator]
