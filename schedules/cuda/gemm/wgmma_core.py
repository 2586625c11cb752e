"""The inner part of an implicit GEMM on Hopper's tensor cores: wgmma from shared memory."""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from . import intrinsics
from .intrinsics import WGMMA_BYTES, WGMMA_I, WGMMA_LINES, pointer
from .mma_core import MmaCore

Expr = Any


class WgmmaCore(MmaCore):
    """Sums of warpgroups, 64 rows by all columns of the tile each; attributes as `MmaCore`.

    The tensor cores read both operands where `cp.async` put them: lines of 64 or 128 bytes of k,
    or of 64 rows, whose chunks change places as `wgmma` expects it. One step is multiplied
    while the threads copy the next ones.
    """

    in_flight = 1

    def place(self, letter: str, row: Expr, k: Expr) -> Expr:
        """Where an element lies in its tile; lines of rows are in blocks of 64 rows."""
        if self.operands[letter].along == "k":
            return super().place(letter, row, k)
        line, chunk = WGMMA_BYTES // self.itemsize, self._chunk
        at = (row % line // chunk) ^ (k % WGMMA_LINES)
        return row // line * (self.step * line) + k * line + at * chunk + row % chunk

    def multiply(self, a: Any, b: Any, first_a: Expr, first_b: Expr) -> None:
        """Begin to add the products of two tiles; those of the step before are complete then."""
        row = self._row["i"] // WGMMA_I * WGMMA_I
        operands = pointer(a, first_a + row * self.step), pointer(b, first_b)
        across = tuple(self.operands[letter].along != "k" for letter in "ij")
        sums = pointer(self.sums, 0)
        T.evaluate(
            intrinsics.wgmma(self.instruction, self.tile.j, self.step, across, sums, *operands)
        )

    def finish(self) -> None:
        """Wait for the products of the last step."""
        T.evaluate(intrinsics.wait_wgmma(self.instruction, self.count, pointer(self.sums, 0)))
