"""The inner part of an implicit GEMM on tensor cores: ldmatrix, mma.sync."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from . import intrinsics
from .contraction import Operand
from .gemm_tiles import Tile
from .intrinsics import CHUNK_BYTES, MMA_I, MMA_J, MMA_K_BYTES, WARP, Instruction, pointer

Expr = Any


class MmaCore:
    """Sums of a warp's tiles of 16 rows by 8 columns, four of each in a thread.

    `step`: elements of k in a tile of shared memory.
    `operands`: by "i" and "j", as they are copied to shared memory.
    `in_flight`: steps that are still multiplied while the threads go on.
    """

    in_flight = 0

    def __init__(self, tile: Tile, instruction: Instruction, a: Operand, b: Operand) -> None:
        self.tile, self.instruction = tile, instruction
        self.itemsize = tvm.DataType(instruction.dtype).itemsize
        self.step = tile.k_bytes // self.itemsize
        self.sum_dtype = instruction.sum_dtype
        self.operands = {"i": _transposable(a), "j": _transposable(b)}
        self._chunk = CHUNK_BYTES // self.itemsize

    def length(self, letter: str) -> int:
        """Elements of an operand's tile in shared memory."""
        return self.tile.rows(letter) * self.step

    def place(self, letter: str, row: Expr, k: Expr) -> Expr:
        """Where an element lies in its tile: chunks of a line change places from line to line."""
        by_row = self.operands[letter].along == "k"
        across, along = (row, k) if by_row else (k, row)
        length = self.step if by_row else self.tile.rows(letter)
        chunks = length // self._chunk
        # Chunks change places within groups of 2, 4 or 8; lines share the 128 bytes of all banks.
        group = min(chunks & -chunks, 8)
        turn = across // (8 // group) % group
        chunk = tirx.bitwise_xor(along // self._chunk, turn)
        return across * length + chunk * self._chunk + along % self._chunk

    def begin(self, thread: Expr) -> None:
        """Allocate a thread's registers, and let the sums be 0."""
        tile = self.tile
        self._lane, warp = thread % WARP, thread // WARP
        self._row = {
            "i": warp // tile.warps_j * (tile.mma_i * MMA_I),
            "j": warp % tile.warps_j * (tile.mma_j * MMA_J),
        }
        self.sums = T.alloc_buffer((self.count,), self.sum_dtype, scope="local")
        self._a = T.alloc_buffer((tile.mma_i * 4,), "uint32", scope="local")
        self._b = T.alloc_buffer((tile.mma_j * 2,), "uint32", scope="local")
        self.clear()

    @property
    def count(self) -> int:
        """Sums of a thread."""
        return self.tile.mma_i * self.tile.mma_j * 4

    def clear(self) -> None:
        """Let the sums be 0."""
        with T.unroll(0, self.count) as at:
            T.buffer_store(self.sums, tirx.const(0, self.sum_dtype), [at])

    def multiply(self, a: Any, b: Any, first_a: Expr, first_b: Expr) -> None:
        """Add the products of two tiles, which begin at these elements of shared memory."""
        tile, row = self.tile, self._row
        for k in range(0, self.step, MMA_K_BYTES // self.itemsize):
            self._load_rows(a, first_a, k)
            for n in range(tile.mma_j // 2):
                self._load("j", b, first_b, self._b, n, row["j"] + n * 2 * MMA_J, k)
            for n in range(tile.mma_i):
                for m in range(tile.mma_j):
                    sums = pointer(self.sums, (n * tile.mma_j + m) * 4)
                    operands = pointer(self._a, n * 4), pointer(self._b, m * 2)
                    T.evaluate(intrinsics.mma(self.instruction, sums, *operands))

    def _load_rows(self, a: Any, first_a: Expr, k: int) -> None:
        """The first operand's registers, for one step of the instruction."""
        for n in range(self.tile.mma_i):
            self._load("i", a, first_a, self._a, n, self._row["i"] + n * MMA_I, k)

    def _load(
        self, letter: str, shared: Any, first: Expr, to: Any, n: int, row: Expr, k: int
    ) -> None:
        """16 rows and 32 bytes of k, as four registers.

        Registers of A hold rows 0-7 and 8-15 of the first 16 bytes, then of the others; those of B
        first all bytes of rows 0-7.
        """
        by_row = self.operands[letter].along == "k"
        block, line = self._lane // 8, self._lane % 8
        half_row, half_k = (block % 2, block // 2) if letter == "i" else (block // 2, block % 2)
        row, at_k = row + half_row * 8, k + half_k * self._chunk
        row, at_k = (row + line, at_k) if by_row else (row, at_k + line)
        source = pointer(shared, first + self.place(letter, row, at_k))
        T.evaluate(intrinsics.ldmatrix(pointer(to, n * 4), source, not by_row))
        if self.instruction.dtype == "float32":
            T.evaluate(intrinsics.round_tf32(pointer(to, n * 4)))

    def places(self) -> Iterator[tuple[int, Expr, Expr]]:
        """Each sum of a thread, with its row and column in the tile."""
        tile = self.tile
        row, column = self._row["i"] + self._lane // 4, self._row["j"] + self._lane % 4 * 2
        for n in range(tile.mma_i):
            for m in range(tile.mma_j):
                for at in range(4):
                    i, j = row + (n * MMA_I + at // 2 * 8), column + (m * MMA_J + at % 2)
                    yield (n * tile.mma_j + m) * 4 + at, i, j


def _transposable(operand: Operand) -> Operand:
    """The operand as it is stored in shared memory: only 16 bits can be transposed from there."""
    if operand.along != "k" and tvm.DataType(operand.dtype).bits != intrinsics.TRANSPOSED_BITS:
        return replace(operand, along="k", lanes=1)
    return operand
