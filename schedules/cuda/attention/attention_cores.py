"""The two products of an attention, and how weights get from the first one to the second.

S = Q K^T and O = P V are products as the implicit GEMM has them, over tiles of queries (i) and keys
(j, then k) that the warps of a block divide by queries. So a row of S stays in one warp, and so do
P and O.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import tvm
from tvm.script.ir_builder import tirx as T

from ...attention import AttentionWorkload, Heads
from ..gemm import intrinsics
from ..gemm.contraction import VECTOR_BYTES, Operand
from ..gemm.fma_core import FmaCore
from ..gemm.gemm_tiles import FMA_LANES_I, FMA_LANES_J, Tile
from ..gemm.intrinsics import INSTRUCTIONS, MMA_I, QUAD, WARP, pointer
from ..gemm.mma_core import MmaCore
from .online_softmax import Rows

Expr = Any
MMA_DEPTH = 16
"""Elements of a query and of a value are filled up to a multiple of this."""
FMA_COLUMNS = FMA_LANES_J * QUAD


@dataclass(frozen=True)
class AttentionTile:
    """Tile of one block in one step: scores of `warps` times `rows` queries with `keys` keys."""

    warps: int
    rows: int  # rows of a warp: 16, or 32 where no tensor core multiplies
    keys: int

    @property
    def queries(self) -> int:
        return self.warps * self.rows

    @property
    def threads(self) -> int:
        return self.warps * WARP


class MmaPair:
    """Both products on tensor cores, of half or bfloat16; weights stay in registers.

    `lanes`: neighboring results of a thread.
    `weights_length`: elements of shared memory that weights take.
    """

    lanes = 2
    weights_length = 0

    def __init__(self, w: AttentionWorkload, tile: AttentionTile) -> None:
        assert tile.rows == MMA_I
        depth, columns = _up(w.d, MMA_DEPTH), _up(w.c, MMA_DEPTH)
        instruction = INSTRUCTIONS[w.dtype]
        size = tvm.DataType(w.dtype).itemsize
        q, k, v = _operands(w)
        shape = tile.queries, tile.keys, tile.warps, 1
        self.scores = MmaCore(Tile(*shape, depth * size), instruction, q, k)
        shape = tile.queries, columns, tile.warps, 1
        self.products = _OnWeights(Tile(*shape, tile.keys * size), instruction, q, v)
        self.score_rows = Rows(2, self.scores.count, 2, 4)
        self.product_rows = Rows(2, self.products.count, 2, 4)

    def hand_over(self, shared: Any, first: int) -> None:
        """Make the weights, formerly scores, the second operand; `first` is their shared memory."""
        self.products.weights = self.scores.sums


class _OnWeights(MmaCore):
    """A product whose first operand are a thread's sums of another one, in float32."""

    weights: Any = None

    def _load_rows(self, a: Any, first_a: Expr, k: int) -> None:
        # Sums of 16 rows and twice 8 columns lie in a thread as the operand's registers do.
        sums = pointer(self.weights, k // 8 * 4)
        T.evaluate(intrinsics.pack(self.instruction, pointer(self._a, 0), sums))


class FmaPair:
    """Both products by float32 multiply-adds; weights go through shared memory. See `MmaPair`."""

    lanes = QUAD

    def __init__(self, w: AttentionWorkload, tile: AttentionTile) -> None:
        depth, columns = _up(w.d, MMA_DEPTH), _up(w.c, FMA_COLUMNS)
        q, k, v = _operands(w)
        weights = Operand(None, w.dtype, "i", "k", 1)
        shape = tile.queries, tile.keys, tile.warps, 1
        self.scores = FmaCore(Tile(*shape, 4 * depth, False), q, k)
        shape = tile.queries, columns, tile.warps, 1
        self.products = FmaCore(Tile(*shape, 4 * tile.keys, False), weights, v)
        self.weights_length = self.products.length("i")
        rows = tile.rows // FMA_LANES_I
        self.score_rows = Rows(rows, self.scores.count, self.scores.columns, FMA_LANES_J)
        self.product_rows = Rows(rows, self.products.count, self.products.columns, FMA_LANES_J)

    def hand_over(self, shared: Any, first: int) -> None:
        """Make the weights, formerly scores, the second operand; `first` is their shared memory."""
        columns = self.scores.columns
        for at, i, j in self.scores.places():
            if at // columns % QUAD == 0:
                to = pointer(shared, first + self.products.place("i", i, j))
                T.evaluate(intrinsics.store_column(to, pointer(self.scores.sums, at), columns))
        T.evaluate(intrinsics.barrier_of_warp())


def pair(w: AttentionWorkload, tile: AttentionTile) -> MmaPair | FmaPair:
    """The cores of a workload for tiles of a size."""
    return FmaPair(w, tile) if w.dtype == "float32" else MmaPair(w, tile)


def _operands(w: AttentionWorkload) -> tuple[Operand, Operand, Operand]:
    """Queries, keys and values as operands; rows of keys and of values are what is summed over."""
    return _operand(w.q, "i", w.dtype), _operand(w.k, "j", w.dtype), _operand(w.v, "j", w.dtype)


def _operand(heads: Heads, axis: str, dtype: str) -> Operand:
    matrix = heads.operand
    across = (axis, "k") if axis == "i" else ("k", axis)  # of rows, of columns
    innermost = heads.split_shape[-1]
    size = tvm.DataType(dtype).itemsize
    lanes = gcd(innermost, VECTOR_BYTES // size) if isinstance(innermost, int) else 1
    if matrix.contiguous_rows:
        return Operand(None, dtype, axis, across[0], lanes)
    if matrix.contiguous_columns:
        return Operand(None, dtype, axis, across[1], lanes)
    return Operand(None, dtype, axis, "k", 1)


def _up(extent: int, unit: int) -> int:
    return -(-extent // unit) * unit
