"""Loops by which the threads of a block share the vectors of a tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from .fma_core import FmaCore
from .mma_core import MmaCore

Expr = Any
_UNROLLED = 4


def rounds(count: int) -> Any:
    """A loop, written out where it is short."""
    return T.unroll(0, count) if count <= _UNROLLED else T.serial(0, count)


def both(conditions: Sequence[Expr]) -> Expr:
    """All of the conditions; true where there are none."""
    found: Expr = tirx.const(True, "bool")
    for at, condition in enumerate(conditions):
        found = condition if at == 0 else tirx.And(found, condition)
    return found


@contextmanager
def where(conditions: Sequence[Expr]) -> Iterator[None]:
    """Statements that run where all of the conditions hold."""
    if not conditions:
        yield
        return
    with T.If(both(conditions)), T.Then():
        yield


@contextmanager
def each_vector(core: MmaCore | FmaCore, letter: str, thread: Expr) -> Iterator[tuple[Expr, Expr]]:
    """A thread's vectors of an operand's tile: the row and the place of k where each begins."""
    tile, operand = core.tile, core.operands[letter]
    by_row = operand.along == "k"
    lines = (tile.rows(letter), core.step)
    across, along = lines if by_row else lines[::-1]
    each = along // operand.lanes
    count = across * each
    with rounds(-(-count // tile.threads)) as at:
        place = at * tile.threads + thread
        line, first = place // each, place % each * operand.lanes
        with where([place < count] if count % tile.threads else []):
            yield (line, first) if by_row else (first, line)
