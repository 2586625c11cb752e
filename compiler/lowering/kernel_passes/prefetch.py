"""Software prefetch of weights that a kernel streams from memory, if its schedule requests it.

Weights do not stay in cache from one inference to the next. A core that multiplies while it reads
them reaches a third of the memory bandwidth: its reorder buffer holds some twenty steps of a
matmul, and hardware prefetch stops at each page. `schedules.x86.machine.prefetch` documents how
schedules mark the loops of such a matmul.

`llvm.prefetch` is unsuitable: LLVM assumes that it may read any memory, and stores and reloads the
accumulators in every step. Inline assembly without visible memory access leaves them in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad

from schedules.tir_visit import nodes_of
from schedules.x86.machine import prefetch as marks

from ...primfuncs.query import (
    bound_values,
    expanded,
    has_attribute,
    replace_loop,
    with_llvm,
    with_parts,
    without_marks,
)
from ...target.cpu import system_triple
from .prefetch_results import LINE_BYTES, prefetch_calls, with_result_prefetches
from .prefetch_tiles import with_tile_prefetches

_FUNCTION = "baton_prefetch"
_EFFECTS = "nounwind willreturn memory(inaccessiblemem: readwrite)"
# An address past the end of the weights is harmless: the instruction never faults.
_DEFINITION = f"""
define linkonce_odr void @{_FUNCTION}(ptr %address) alwaysinline {_EFFECTS} {{
  call void asm sideeffect "prefetcht0 ($0)", "r"(ptr %address) {_EFFECTS}
  ret void
}}
"""
_NO_MARKS: Mapping[str, int] = {}


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="InsertPrefetches")
def insert_prefetches(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions for x86: flat buffers, explicit vectors, no blocks."""
    is_marked = any(has_attribute(func.body, key) for key in (marks.PANEL, marks.TILE))
    if not is_marked or not _is_x86(func):
        return func
    body = with_result_prefetches(func.body, _FUNCTION)
    body = with_tile_prefetches(body, _FUNCTION)
    body = _insert(body, _Nest(), _NO_MARKS)
    return func.with_body(with_llvm(body, _DEFINITION))


def _is_x86(func: tirx.PrimFunc) -> bool:
    target = tvm.target.Target(func.attrs["target"])
    triple = str(target.attrs.get("mtriple") or system_triple())
    return triple.startswith(("x86_64", "i686", "i386"))


@dataclass(frozen=True)
class _Nest:
    """Marked loops around a statement, outer ones first, as (position, extent)."""

    rows: tuple[tuple[Any, Any], ...] = ()
    steps: tuple[tuple[Any, int], ...] = ()
    stride_bytes: int = 0

    def enter(self, loop: tirx.For, found: Mapping[str, int]) -> _Nest:
        """The nest inside `loop`, which carries these marks."""
        nest = self
        if marks.STRIDE in found:
            nest = replace(nest, stride_bytes=found[marks.STRIDE])
        if marks.ROWS in found:
            nest = replace(nest, rows=(*nest.rows, _part(loop, found[marks.ROWS])))
        if marks.STEPS in found:
            nest = nest.with_step(loop)
        return nest

    def with_step(self, loop: tirx.For) -> _Nest:
        """The nest inside one more loop of the reduction."""
        return replace(self, steps=(*self.steps, _part(loop, int(loop.extent))))

    def is_enough_for(self, panel_bytes: int) -> bool:
        """Whether one line per iteration covers the whole panel, with fewer instructions."""
        known = [e for _, e in (*self.rows, *self.steps) if isinstance(e, int)]
        return math.prod(known) * LINE_BYTES >= panel_bytes


@dataclass(frozen=True)
class _Steps:
    """The reduction loops inside the loop whose iterations prefetch a panel's lines."""

    panel_bytes: int
    loops: tuple[tirx.For, ...] = ()


def _insert(statement: tirx.Stmt, nest: _Nest, found: Mapping[str, int]) -> tirx.Stmt:
    """The statement with its prefetches and without its marks.

    `found` holds the marks of the next loop inside. Lowering may have split that loop into two, one
    for partial tiles, or removed it if it had one iteration.
    """
    if isinstance(statement, tirx.AttrStmt) and statement.attr_key in marks.KEYS:
        found = {**found, str(statement.attr_key): int(statement.value)}
        return _insert(statement.body, nest, found)
    if not isinstance(statement, tirx.For):
        return with_parts(statement, lambda part: _insert(part, nest, found))
    inside = nest.enter(statement, found)
    if marks.PANEL in found:
        inside = inside.with_step(statement)
        return _with_prefetches(statement, _Steps(found[marks.PANEL]), inside)
    body = statement.body
    steps = _steps_inside(body) if inside.steps else None
    if steps is None or not inside.is_enough_for(steps.panel_bytes):
        return replace_loop(statement, body=_insert(body, inside, _NO_MARKS))
    plain = replace_loop(statement, body=without_marks(body, marks.KEYS))
    return _with_prefetches(plain, steps, inside)


def _steps_inside(body: tirx.Stmt) -> _Steps | None:
    """The marked loops below, down to the innermost; None if other statements are in between."""
    loops: list[tirx.For] = []
    panel_bytes = 0
    while not panel_bytes or not isinstance(body, tirx.For):
        if isinstance(body, tirx.AttrStmt):
            panel_bytes = int(body.value) if body.attr_key == marks.PANEL else panel_bytes
        elif isinstance(body, tirx.For):
            loops.append(body)
        elif not _is_skipping(body):
            return None
        body = body.then_case if _is_skipping(body) else body.body
    return _Steps(panel_bytes, (*loops, body))


def _is_skipping(statement: tirx.Stmt) -> bool:
    """Whether a statement is a reduction step that some rows skip."""
    return isinstance(statement, tirx.IfThenElse) and statement.else_case is None


def _with_prefetches(loop: tirx.For, inner: _Steps, nest: _Nest) -> tirx.For:
    """Make each iteration of a reduction loop prefetch its share of the next panel."""
    weights = _first_vector(loop.body)
    if weights is None:  # under tirx.disable_vectorize
        return loop
    item, panel_bytes = tvm.DataType(weights.source.dtype).itemsize, inner.panel_bytes
    step, steps = _position(nest.steps)
    row, rows = _position(nest.rows)
    base = _at_first_step(weights.indices[0].base, loop.body, inner.loops)
    stride_bytes = nest.stride_bytes * math.prod(int(step.extent) for step in inner.loops)
    next_panel = base - step * (stride_bytes // item) + panel_bytes // item

    # Each row tile prefetches an equal share: an address with constant stride costs one addition
    # per step. Rounding up exceeds the panel slightly. With a dynamic number of tiles, each step
    # prefetches the lines of a single tile; with more tiles the requests overlap and hit the cache.
    whole = panel_bytes // item
    share = _quotient(whole, rows)
    growth = _quotient(share, steps)
    first = next_panel + row * share + step * growth
    line = LINE_BYTES // item
    most = _quotient(_quotient(whole, _least(nest.rows)), steps)
    wanted = [first + i * line for i in range(-(-most // line))]
    lines = [tirx.BufferLoad(weights.source, [index]) for index in wanted]
    fetches = prefetch_calls(_FUNCTION, lines)
    return replace_loop(loop, body=tirx.SeqStmt([*fetches, loop.body]))


def _at_first_step(index: Any, body: tirx.Stmt, loops: tuple[tirx.For, ...]) -> Any:
    """The index in the first iteration of these loops, without the variables that `body` binds."""
    first = {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype) for loop in loops}
    return expanded(index, bound_values(body) | first)


def _first_vector(body: tirx.Stmt) -> TensorLoad | None:
    """The first of the widest vectors that are read but not written; None in scalar code."""
    vectors = [v for v in nodes_of(body, TensorLoad) if isinstance(v.indices[0], tirx.Ramp)]
    written = [store.buffer for store in nodes_of(body, tirx.BufferStore)]
    read = [v for v in vectors if not any(v.source.same_as(buffer) for buffer in written)]
    sizes = [v.indices[0].lanes * tvm.DataType(v.source.dtype).itemsize for v in read]
    return read[sizes.index(max(sizes))] if read else None


def _quotient(whole: Any, parts: Any) -> Any:
    """The size of equal parts, rounded up."""
    if isinstance(whole, int) and isinstance(parts, int):
        return -(-whole // parts)
    return tirx.floordiv(whole + parts - 1, parts)


def _least(rows: tuple[tuple[Any, Any], ...]) -> int:
    """A lower bound of the number of row tiles."""
    return math.prod(extent for _, extent in rows if isinstance(extent, int))


def _part(loop: tirx.For, extent: int) -> tuple[Any, Any]:
    """The loop's variable, or of a loop that was fused with outer ones its part, and extent."""
    var = loop.loop_var
    if extent == marks.WHOLE:
        return var, loop.extent
    return (var if int(loop.extent) == extent else tirx.floormod(var, extent)), extent


def _position(loops: tuple[tuple[Any, Any], ...]) -> tuple[Any, Any]:
    """Number of an iteration of nested loops, and how many there are."""
    position: Any = tirx.const(0, "int32")
    count: Any = 1
    for value, extent in loops:
        position = position * extent + value
        count *= extent
    return position, count
