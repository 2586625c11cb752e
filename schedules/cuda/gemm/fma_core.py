"""The inner part of an implicit GEMM in float32: multiply-adds of register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from . import intrinsics
from .contraction import Operand
from .gemm_tiles import FMA_LANES_I, FMA_LANES_J, Tile
from .intrinsics import QUAD, WARP, pointer

Expr = Any
_UNROLLED = 16
"""Elements of k whose products are written out."""


class FmaCore:
    """Sums of a warp of 4 by 8 threads, each of which has squares of 4 rows and 4 columns.

    Tiles lie in shared memory with their rows side by side, so that four of a thread's are one
    vector and a warp's reads meet no bank twice. Attributes as those of `MmaCore`.
    """

    sum_dtype = "float32"
    itemsize = 4
    in_flight = 0

    def __init__(self, tile: Tile, a: Operand, b: Operand) -> None:
        self.tile = tile
        self.step = tile.k_bytes // self.itemsize
        self.operands = {"i": _scattered(a), "j": _scattered(b)}

    def length(self, letter: str) -> int:
        """Elements of an operand's tile in shared memory."""
        return self.step * self._pitch(letter)

    def _pitch(self, letter: str) -> int:
        # Copies of neighboring elements of k go to neighboring vectors of the banks.
        return self.tile.rows(letter) + (QUAD if self.operands[letter].along == "k" else 0)

    def place(self, letter: str, row: Expr, k: Expr) -> Expr:
        """Where an element lies in its tile."""
        return k * self._pitch(letter) + row

    def begin(self, thread: Expr) -> None:
        """Allocate a thread's registers, and let the sums be 0."""
        tile, warp, lane = self.tile, thread // WARP, thread % WARP
        self._row = {
            "i": warp // tile.warps_j * (tile.i // tile.warps_i) + lane // FMA_LANES_J * QUAD,
            "j": warp % tile.warps_j * (tile.j // tile.warps_j) + lane % FMA_LANES_J * QUAD,
        }
        self.sums = T.alloc_buffer((self.count,), "float32", scope="local")
        self._a = T.alloc_buffer((QUAD * tile.quads_i,), "float32", scope="local")
        self._b = T.alloc_buffer((QUAD * tile.quads_j,), "float32", scope="local")
        self.clear()

    @property
    def columns(self) -> int:
        """Columns of a thread's sums."""
        return QUAD * self.tile.quads_j

    @property
    def count(self) -> int:
        """Sums of a thread."""
        return QUAD * self.tile.quads_i * self.columns

    def clear(self) -> None:
        """Let the sums be 0."""
        with T.unroll(0, self.count) as at:
            T.buffer_store(self.sums, tirx.const(0, "float32"), [at])

    def multiply(self, a: Any, b: Any, first_a: Expr, first_b: Expr) -> None:
        """Add the products of two tiles, which begin at these elements of shared memory."""
        unrolled = min(self.step, _UNROLLED)
        with T.serial(0, self.step // unrolled) as outer:
            for k in range(unrolled):
                self._multiply_step(a, b, first_a, first_b, outer * unrolled + k)

    def _multiply_step(self, a: Any, b: Any, first_a: Expr, first_b: Expr, k: Expr) -> None:
        tile = self.tile
        for n in range(tile.quads_i):
            row = self._row["i"] + n * FMA_LANES_I * QUAD
            source = pointer(a, first_a + self.place("i", row, k))
            T.evaluate(intrinsics.load_vector(pointer(self._a, n * QUAD), source))
        for n in range(tile.quads_j):
            row = self._row["j"] + n * FMA_LANES_J * QUAD
            source = pointer(b, first_b + self.place("j", row, k))
            T.evaluate(intrinsics.load_vector(pointer(self._b, n * QUAD), source))
        registers = (pointer(each, 0) for each in (self.sums, self._a, self._b))
        T.evaluate(intrinsics.outer_product(QUAD * tile.quads_i, self.columns, *registers))

    def places(self) -> Iterator[tuple[int, Expr, Expr]]:
        """Each sum of a thread, with its row and column in the tile."""
        columns = self.columns
        for n in range(QUAD * self.tile.quads_i):
            for m in range(columns):
                i = self._row["i"] + (n // QUAD * FMA_LANES_I * QUAD + n % QUAD)
                j = self._row["j"] + (m // QUAD * FMA_LANES_J * QUAD + m % QUAD)
                yield n * columns + m, i, j


def _scattered(operand: Operand) -> Operand:
    """The operand as it is copied: what lies along k is copied element by element."""
    assert tvm.DataType(operand.dtype).itemsize == FmaCore.itemsize
    return replace(operand, lanes=1) if operand.along == "k" else operand
