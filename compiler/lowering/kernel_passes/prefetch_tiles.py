"""Software prefetch, during a tile's matmul, of the data for its epilogue and the next tile.

    tile                                         tile
      chunk of the reduction                       chunk of the reduction
        steps                          -->           prefetch this chunk's inputs of the next tile
                                                     prefetch some lines of the tile's results
                                                     steps
      results: out[...] = f(sums, x[...])          results: out[...] = f(sums, x[...])

An image in channel blocks that is larger than L2 is accessed a few lines at each of many addresses,
which hardware prefetch does not follow. The next tile's inputs are the lines after those of this
tile, also across rows. Schedules mark the loop with `schedules.x86.machine.prefetch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    marked_loop,
    replace_loop,
    with_parts,
    without_marks,
)
from .prefetch_results import LINE_BYTES, loop_variables, prefetch_calls

# Maximum distance in bytes between the lines of a run.
_NEAR_BYTES = 256


@dataclass(frozen=True)
class _Run:
    """Lines of a buffer at equal distances: the first one's index, their number, elements apart."""

    buffer: Any
    first: Any
    count: int
    apart: int

    def share(self, iteration: Any, iterations: int) -> list[Any]:
        """Places of the lines that an iteration asks for, if all iterations ask for all."""
        each = -(-self.count // iterations)
        if each == self.count:
            return self.lines(self.first)
        places = [tirx.min(iteration * each + i, self.count - 1) for i in range(each)]
        return [tirx.BufferLoad(self.buffer, [self.first + at * self.apart]) for at in places]

    def lines(self, first: Any) -> list[Any]:
        """Places of all lines of a run that begins at `first`."""
        places = [first + i * self.apart for i in range(self.count)]
        return [tirx.BufferLoad(self.buffer, [place]) for place in places]


def with_tile_prefetches(body: tirx.Stmt, function: str) -> tirx.Stmt:
    """Insert such prefetches, calls of `function` with an address, and remove their marks."""
    bound = bound_values(body)
    local = [node.buffer for node in nodes_of(body, tirx.stmt.AllocBuffer)]

    def beside(sequence: tirx.SeqStmt) -> tirx.Stmt:
        marked = [
            i for i, part in enumerate(sequence.seq) if marked_loop(part, marks.TILE) is not None
        ]
        if len(marked) != 1:
            return sequence
        parts = list(sequence.seq)
        results = _accesses(parts[: marked[0]] + parts[marked[0] + 1 :], tirx.Ramp, bound, local)
        parts[marked[0]] = _with_prefetches(parts[marked[0]], results, bound, local, function)
        return tirx.SeqStmt(parts)

    body = tvm_ffi.structural_map(body, (tirx.SeqStmt, beside))
    return without_marks(body, (marks.TILE,))


def _with_prefetches(
    statement: tirx.Stmt,
    results: list[tuple[Any, Any]],
    bound: Mapping[Any, Any],
    local: list[Any],
    function: str,
) -> tirx.Stmt:
    """The marked loop with prefetches at its head, after its marks."""
    if isinstance(statement, tirx.AttrStmt):
        return with_parts(
            statement, lambda body: _with_prefetches(body, results, bound, local, function)
        )
    iteration, iterations = statement.loop_var, int(statement.extent)
    places = [place for run in _runs(results) for place in run.share(iteration, iterations)]
    for run in _runs(_accesses([statement.body], tirx.Var, bound, local)):
        line = _line(run.buffer)
        if run.apart < line:  # of a plain image, whose lines hardware prefetch follows
            continue
        first = _at_last_lines(run.first, statement.body, line) + run.count * run.apart
        if _grows(first, iteration) >= line:
            places += run.lines(first)
        else:
            first = substitute(first, [(iteration, tirx.const(0, iteration.ty.dtype))])
            places += _Run(run.buffer, first, run.count, run.apart).share(iteration, iterations)
    fetches = prefetch_calls(function, places)
    return replace_loop(statement, body=tirx.SeqStmt([*fetches, statement.body]))


def _accesses(
    statements: Sequence[tirx.Stmt], kind: type, bound: Mapping[Any, Any], local: list[Any]
) -> list[tuple[Any, Any]]:
    """Accesses, by vectors or scalars, to outer buffers; not vectors that inner loops move."""
    found: list[tuple[Any, Any]] = []
    inside = [var for statement in statements for var in loop_variables(statement)]

    def add(buffer: Any, index: Any) -> None:
        if any(buffer.same_as(other) for other in local):
            return
        if isinstance(index, tirx.Ramp) != (kind is tirx.Ramp):
            return
        index = expanded(getattr(index, "base", index), bound)
        if kind is not tirx.Ramp or not any(uses(index, var) for var in inside):
            found.append((buffer, index))

    for statement in statements:
        for node in nodes_of(statement, (tirx.BufferStore, TensorLoad)):
            add(node.source if isinstance(node, TensorLoad) else node.buffer, node.indices[0])
    return found


def _runs(accesses: list[tuple[Any, Any]]) -> list[_Run]:
    """The accesses as runs of more than one line."""
    analyzer = sym.Analyzer()
    groups: list[tuple[Any, Any, set[int]]] = []
    for buffer, index in accesses:
        for other, base, offsets in groups:
            if other.same_as(buffer):
                apart = analyzer.simplify(index - base)
                if isinstance(apart, tirx.IntImm):
                    offsets.add(int(apart))
                    break
        else:
            groups.append((buffer, index, {0}))
    return [run for buffer, base, at in groups for run in _runs_of(buffer, base, sorted(at))]


def _runs_of(buffer: Any, base: Any, offsets: list[int]) -> list[_Run]:
    near = _NEAR_BYTES * _line(buffer) // LINE_BYTES
    starts = [0, *(i for i in range(1, len(offsets)) if offsets[i] - offsets[i - 1] > near)]
    runs = []
    for start, end in zip(starts, [*starts[1:], len(offsets)]):
        first, count = offsets[start], end - start
        if count > 1:
            apart = (offsets[end - 1] - first) // (count - 1)
            runs.append(_Run(buffer, base + first, count, apart))
    return runs


def _line(buffer: Any) -> int:
    """Elements of a cache line."""
    return LINE_BYTES // int(tvm.DataType(str(buffer.dtype)).itemsize)


def _at_last_lines(index: Any, body: tirx.Stmt, line: int) -> Any:
    """The index in the last iteration of loops inside that step over lines, else in the first."""
    values: list[tuple[Any, Any]] = []
    for loop in nodes_of(body, tirx.For):
        var = loop.loop_var
        last = int(loop.extent) - 1 if _grows(index, var) >= line else 0
        values.append((var, tirx.const(last, var.ty.dtype)))
    return substitute(index, values)


def _grows(index: Any, var: Any) -> int:
    """Elements by which the index grows with the variable."""
    if not uses(index, var):
        return 0
    apart = sym.Analyzer().simplify(substitute(index, [(var, var + 1)]) - index)
    return int(apart) if isinstance(apart, tirx.IntImm) else 0
