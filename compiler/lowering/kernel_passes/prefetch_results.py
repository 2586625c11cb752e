"""Software prefetch of the data that a kernel reads and writes after its matmul, during the matmul.

    task                                         task
      products                                     products
        tile                           -->           tile
                                                       prefetch the lines of some results
      results: out[...] = f(sums, x[...])          results: out[...] = f(sums, x[...])

Results of a matmul that are summed only at the end, as in Strassen's algorithm, are stored all at
once, and so are their addends read: the core waits for L3 and multiplies nothing.
`schedules.x86.machine.prefetch` documents how schedules mark the loops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad

from schedules.generic.stages import substitute, uses
from schedules.tir_visit import nodes_of
from schedules.x86.machine import prefetch as marks

from ...primfuncs.query import (
    bound_values,
    expanded,
    has_attribute,
    replace_loop,
    with_parts,
    without_marks,
)

LINE_BYTES = 64
_MOST_ITERATIONS = 1 << 20
"""Mark of a loop over results that fill part of a cache."""

_NO_MARKS: Mapping[str, int] = {}
_OF_REDUCTIONS = (marks.STEPS, marks.STRIDE, marks.PANEL)
"""Marks of loops inside of those over tiles."""


def with_result_prefetches(body: tirx.Stmt, function: str) -> tirx.Stmt:
    """Insert such prefetches, calls of `function` with an address, and remove their marks."""
    bound = bound_values(body)
    local = [node.buffer for node in nodes_of(body, tirx.stmt.AllocBuffer)]

    def ahead(sequence: tirx.SeqStmt) -> tirx.Stmt:
        results = next((part for part in sequence.seq if _is_results(part)), None)
        if results is None:
            return sequence
        loops = _loops(results)
        extents = [_most_iterations(loop, bound) for loop in loops]
        if not loops or max(extents) > _MOST_ITERATIONS:
            return sequence
        lines = _lines(results, loops, bound, local)
        if not lines:
            return sequence
        iterated = [(loop.loop_var, extent) for loop, extent in zip(loops, extents)]
        fetch = functools.partial(_fetches, lines, iterated, function)
        return tirx.SeqStmt([_insert(part, fetch, (), _NO_MARKS) for part in sequence.seq])

    body = tvm_ffi.structural_map(body, (tirx.SeqStmt, ahead))
    return without_marks(body, (marks.AHEAD, marks.RESULTS))


def _is_results(statement: tirx.Stmt) -> bool:
    while isinstance(statement, tirx.AttrStmt) and statement.attr_key != marks.RESULTS:
        statement = statement.body
    return isinstance(statement, tirx.AttrStmt)


def _loops(statement: tirx.Stmt) -> list[tirx.For]:
    """The marked loops over the results, outermost first; the first part of a split loop.

    Lowering leaves out loops of one iteration, whose marks then precede the next.
    """
    if isinstance(statement, tirx.SeqStmt):
        return next(filter(None, map(_loops, statement.seq)), [])
    if not isinstance(statement, tirx.AttrStmt):
        return []
    is_marked = statement.attr_key == marks.RESULTS
    while isinstance(statement, tirx.AttrStmt):
        is_marked = is_marked or statement.attr_key == marks.RESULTS
        statement = statement.body
    if isinstance(statement, tirx.SeqStmt) and is_marked:
        statement = next((part for part in statement.seq if isinstance(part, tirx.For)), None)
    if not is_marked or not isinstance(statement, tirx.For):
        return []
    return [statement, *_loops(statement.body)]


def _most_iterations(loop: tirx.For, bound: Mapping[Any, Any]) -> int:
    """Maximum extent of a loop over all tasks; huge if unbounded."""
    return int(sym.Analyzer().const_int_bound(expanded(loop.extent, bound)).max_value)


def _lines(
    results: tirx.Stmt, loops: list[tirx.For], bound: dict[Any, Any], local: list[Any]
) -> list[tuple[Any, Any]]:
    """Buffers and indices that each iteration of the loops accesses, one for each line.

    Excludes buffers that the function allocates, and indices that the innermost loop does not
    change or that depend on loops inside.
    """
    found: list[tuple[Any, Any]] = []
    analyzer = sym.Analyzer()
    inside = loop_variables(loops[-1].body)

    def add(buffer: Any, index: Any) -> None:
        if any(buffer.same_as(other) for other in local):
            return
        index = expanded(index.base if isinstance(index, tirx.Ramp) else index, bound)
        if not uses(index, loops[-1].loop_var) or any(uses(index, var) for var in inside):
            return
        line = LINE_BYTES // tvm.DataType(str(buffer.dtype)).itemsize
        for other, known in found:
            apart = analyzer.simplify(index - known)
            is_near = isinstance(apart, tirx.IntImm) and abs(int(apart)) < line
            if other.same_as(buffer) and is_near:
                return
        found.append((buffer, index))

    for node in nodes_of(results, (tirx.BufferStore, TensorLoad)):
        add(node.source if isinstance(node, TensorLoad) else node.buffer, node.indices[0])
    return found


def loop_variables(body: tirx.Stmt) -> list[Any]:
    return [loop.loop_var for loop in nodes_of(body, tirx.For)]


def _insert(
    statement: tirx.Stmt,
    fetches: Callable[[Any, int], list[tirx.Stmt]],
    tiles: tuple[tuple[Any, int], ...],
    found: Mapping[str, int],
    before: int = 0,
) -> tirx.Stmt:
    """The statement with prefetches at the head of the innermost marked loops over tiles.

    `tiles` are the marked loops around as (position, extent), `found` the marks of the next loop
    inside. Lowering may have split that loop, or removed it if it had one iteration: then the
    reduction follows. `before` iterations of that loop have been met already.
    """

    def inside(body: tirx.Stmt) -> tirx.Stmt:
        return _insert(body, fetches, tiles, found, before)

    def ahead(position: Any) -> list[tirx.Stmt]:
        place: Any = tirx.const(0, "int32")
        around = (*tiles, (position, found[marks.AHEAD]))
        for value, count in around:
            place = place * count + value
        return fetches(place, math.prod(count for _, count in around))

    if isinstance(statement, tirx.AttrStmt):
        if statement.attr_key == marks.AHEAD:
            found = {marks.AHEAD: int(statement.value)}
        elif statement.attr_key in _OF_REDUCTIONS and marks.AHEAD in found:
            return tirx.SeqStmt([*ahead(before), statement])
        return with_parts(statement, inside)
    if isinstance(statement, tirx.SeqStmt):
        parts = []
        for part in statement.seq:
            parts.append(inside(part))
            before += _tiles_of(part)
        return tirx.SeqStmt(parts)
    if isinstance(statement, tirx.For):
        if marks.AHEAD not in found:
            return statement
        extent = found[marks.AHEAD]
        var = statement.loop_var
        is_whole = isinstance(statement.extent, tirx.IntImm) and int(statement.extent) == extent
        position = var if is_whole else (var + before) % extent
        if has_attribute(statement.body, marks.AHEAD):
            tiles, found, before = (*tiles, (position, extent)), _NO_MARKS, 0
            return replace_loop(statement, body=inside(statement.body))
        return replace_loop(statement, body=tirx.SeqStmt([*ahead(position), statement.body]))
    return statement


def _tiles_of(part: tirx.Stmt) -> int:
    """Number of iterations in one part of a marked loop over tiles that lowering split."""
    while isinstance(part, tirx.AttrStmt):
        if part.attr_key in _OF_REDUCTIONS:
            return 1
        part = part.body
    is_loop = isinstance(part, tirx.For) and isinstance(part.extent, tirx.IntImm)
    return int(part.extent) if is_loop else 0


def _fetches(
    lines: list[tuple[Any, Any]], loops: list[tuple[Any, int]], function: str, tile: Any, tiles: int
) -> list[tirx.Stmt]:
    """Prefetches of a tile's share; `loops` over results: (variable, iterations), outer first."""
    iterations = math.prod(extent for _, extent in loops)
    share = -(-iterations // tiles)
    calls: list[tirx.Stmt] = []
    for step in range(share):
        iteration: Any = tirx.min(tile * share + step, iterations - 1)
        values: list[tuple[Any, Any]] = []
        for var, extent in reversed(loops):
            values.append((var, iteration % extent))
            iteration = iteration // extent
        places = [tirx.BufferLoad(buffer, [substitute(index, values)]) for buffer, index in lines]
        calls += prefetch_calls(function, places)
    return calls


def prefetch_calls(function: str, places: Iterable[tirx.BufferLoad]) -> list[tirx.Stmt]:
    """A call of the function for the address of each place."""
    addresses = map(tirx.address_of, places)
    return [tirx.Evaluate(tirx.call_extern("void", function, each)) for each in addresses]
