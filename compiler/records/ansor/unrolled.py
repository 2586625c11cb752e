"""Vectorizes the innermost loops that a record leaves to the unroll pragma.

Ansor's pragma `auto_unroll_max_step` turns an innermost loop into scalar statements. The LLVM of
its time made vectors of them; that of TVM 0.27 does not, and the kernel is a hundred times slower:

    for i in 16:  for j in 64 (unrolled):    c[i, j] += a[i, k] * b[k, j]
    for i in 16:  for j in 64 (vectorized):  c[i, j] += a[i, k] * b[k, j]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, Op, TensorLoad
from tvm.s_tir import SBlockRealize

from schedules.generic.stages import substitute
from schedules.tir_visit import nodes_of

from ...primfuncs.query import replace_loop

_PRAGMA = "pragma_auto_unroll_max_step"
_SPATIAL = 0  # tirx.IterVar.DataPar
_EXTENTS = (4, 8, 16, 32, 64)
_IF_THEN_ELSE = "prim.if_then_else"


def vectorize_unrolled(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectorize such loops of a scheduled CPU function where each step stores the next element."""

    def under_pragma(loop: tirx.For) -> tirx.For:
        if _PRAGMA not in loop.annotations:
            return loop
        return replace_loop(loop, body=tvm_ffi.structural_map(loop.body, (tirx.For, _vectorized)))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, under_pragma)))


def _vectorized(loop: tirx.For) -> tirx.For:
    if loop.kind != tirx.ForKind.SERIAL or loop.annotations or not _stores_a_row(loop):
        return loop
    return replace_loop(loop, kind=tirx.ForKind.VECTORIZED)


def _stores_a_row(loop: tirx.For) -> bool:
    """Whether its steps store consecutive elements, from consecutive or the same elements."""
    realize = loop.body
    if not isinstance(realize, SBlockRealize) or not isinstance(loop.extent, tirx.IntImm):
        return False
    block = realize.block
    if int(loop.extent) not in _EXTENTS or not isinstance(block.body, tirx.BufferStore):
        return False
    if block.init is not None or not _is_true(realize.predicate):
        return False
    store = block.body
    bound = list(zip([var.var for var in block.iter_vars], realize.iter_values, strict=True))
    moving = [var for var, value in zip(block.iter_vars, realize.iter_values, strict=True)
              if _strides([value], [], loop) != [0]]  # fmt: skip
    if len(moving) != 1 or int(moving[0].iter_type) != _SPATIAL:
        return False
    calls = (node.op for node in nodes_of(store.value, Call))
    branches = any(isinstance(op, Op) and op.name == _IF_THEN_ELSE for op in calls)
    if branches or _row_stride(store.indices, bound, loop) != 1:
        return False
    loads = nodes_of(store.value, TensorLoad)
    return all(_row_stride(load.indices, bound, loop) in (0, 1) for load in loads)


def _row_stride(indices: Sequence[Any], bound: Sequence[Any], loop: tirx.For) -> int | None:
    """Constant stride of the last index per loop step; None if it varies or others change."""
    *outer, last = _strides(indices, bound, loop) or [None]
    return last if all(stride == 0 for stride in outer) else None


def _strides(indices: Sequence[Any], bound: Sequence[Any], loop: tirx.For) -> list[int | None]:
    """Stride of each index per loop step; None where it is not constant."""
    analyzer, last = sym.Analyzer(), int(loop.extent) - 1
    found: list[int | None] = []
    for index in indices:
        of_loops = substitute(index, list(bound)) if bound else index
        at = [
            substitute(of_loops, [(loop.loop_var, tirx.const(step, str(loop.loop_var.ty.dtype)))])
            for step in (0, 1, last)
        ]
        first, whole = (analyzer.simplify(each - at[0]) for each in at[1:])
        if not isinstance(first, tirx.IntImm) or not isinstance(whole, tirx.IntImm):
            found.append(None)
        else:
            found.append(int(first) if int(first) * last == int(whole) else None)
    return found


def _is_true(predicate: Any) -> bool:
    return isinstance(predicate, tirx.IntImm) and int(predicate) == 1
