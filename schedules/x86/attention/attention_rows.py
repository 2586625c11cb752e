"""Attention with dynamic numbers of queries and keys, as one kernel on x86.

Uses the steps of `attention.x86`. The loops are written by hand, since no schedule primitive tiles
an unknown number of keys:

    parallel batch and heads:
      copy the keys as panels (d, TILE), the values as panels (t, TILE)
      for each tile of rows, the last one of which ends with the last row:
        scores = q k * scale + mask       register tiles of rows x TILE; -inf after the last key
        row maxima, exp, row sums
        out = exp(...) v / row sums       register tiles of rows x TILE

Few rows (such as one for the next token of a decoder) or few keys read keys and values in place:
each lane of a vector of scores is then a separate dot product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ...attention import AttentionWorkload
from ...config import ConfigEntity, options
from ...matmul import unravel
from ...strategy import register
from ..machine.cpu import Machine
from ..reduction.horizontal_sum import joins, places

NAME = "attention_rows.x86"
OPERATOR = "attention_rows"
ROW_TILES = (6, 4, 2, 1)
"""Rows of the register tiles; the last one serves any number of queries."""

FEW_ROWS = 2
FEW_VECTORS = 1
"""Up to this many queries or vectors of keys, copying the keys and values does not pay."""
CHAINS = 4
"""Number of independent sums of values, to hide the latency of additions."""


def supports(w: AttentionWorkload, target: Target) -> bool:
    """float32, with whole vectors of known lengths as queries, keys and values."""
    machine = Machine.from_target(target)
    known = isinstance(w.d, int) and isinstance(w.c, int)
    return w.dtype == "float32" and known and w.c % machine.lanes(w.dtype) == 0


def fallback(w: AttentionWorkload, target: Target) -> ConfigEntity:
    """Register tiles of four vectors, or two where there are 16 registers."""
    machine = Machine.from_target(target)
    vectors = 4 if machine.vector_registers >= 32 else 2
    return options(lanes=machine.lanes(w.dtype), vectors=vectors)


def compute(
    w: AttentionWorkload,
    config: ConfigEntity,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    *masks: te.Tensor,
) -> te.Tensor:
    """q, k, v stored as the workload says, masks of the shapes there -> w.out_shape."""
    return te.extern(
        [w.out_shape],
        [q, k, v, *masks],
        lambda ins, outs: _Loops(w, config, ins, outs).build(),
        name="attention",
        dtype=[w.dtype],
    )


class _Loops:
    """Writes the loops."""

    def __init__(
        self, w: AttentionWorkload, config: ConfigEntity, ins: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        self.w = w
        self.lanes, self.vectors = config.val("lanes"), config.val("vectors")
        self.tile = self.lanes * self.vectors
        self.ins, self.outs = ins, outs

    def build(self) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):  # the builder takes one statement
                self._heads()
            return builder.get()

    def _heads(self) -> None:
        w = self.w
        self.q, self.k, self.v, *self.masks = map(T.buffer_proxy, self.ins)
        (self.out,) = map(T.buffer_proxy, self.outs)
        heads: Any = 1
        for extent in w.batch:
            heads = heads * extent
        key_tiles = tirx.floordiv(w.t + (self.tile - 1), self.tile)

        def on_panels() -> None:
            with T.parallel(0, heads) as head:
                self.at = unravel(head, w.batch)
                self._on_panels(key_tiles)

        if not self._reads_vectors():
            on_panels()
            return
        one_vector = w.t <= FEW_VECTORS * self.lanes
        # Outside of the heads: a loop's memory is taken wherever its branches go.
        with T.If(one_vector):
            with T.Then(), T.parallel(0, heads) as head:
                self.at = unravel(head, w.batch)
                self._in_place(FEW_VECTORS)
            with T.Else(), T.If(w.s <= FEW_ROWS):
                with T.Then(), T.parallel(0, heads) as head:
                    self.at = unravel(head, w.batch)
                    self._in_place(tirx.floordiv(w.t + (self.lanes - 1), self.lanes))
                with T.Else():
                    on_panels()

    def _reads_vectors(self) -> bool:
        """Whether keys and values are rows of whole vectors in memory."""
        w = self.w
        return (
            w.k.operand.contiguous_rows and w.v.operand.contiguous_columns and w.d % self.lanes == 0
        )

    def _on_panels(self, key_tiles: Any) -> None:
        """Copies of the keys and values, and then tiles of rows."""
        w = self.w
        self.keys = self._allocate((key_tiles, w.d, self.tile))
        self.values = self._allocate((-(-w.c // self.tile), w.t, self.tile))
        self._copy_keys(key_tiles)
        self._copy_values()
        needed = tirx.floordiv(w.s + (ROW_TILES[0] - 1), ROW_TILES[0])
        each = tirx.floordiv(w.s + (needed - 1), tirx.max(needed, 1))
        for rows, fewer in zip(ROW_TILES, (*ROW_TILES[1:], 0)):
            larger = [size for size in ROW_TILES if size > rows]
            # Taken if it is the smallest tile that is enough, or the largest that fits.
            fits = tirx.And(w.s >= rows, each > fewer) if rows > 1 else w.s >= 1
            for size in larger:
                above = ROW_TILES[ROW_TILES.index(size) + 1]
                fits = tirx.And(fits, tirx.Not(tirx.And(w.s >= size, each > above)))
            with T.If(fits), T.Then():
                self._row_tiles(rows, key_tiles)

    def _allocate(self, shape: tuple[Any, ...]) -> Any:
        """Memory; of a known size below 1 KB it is on the stack, or in registers."""
        return T.buffer_proxy(T.alloc_buffer(shape, self.w.dtype))

    def _registers(self, *extents: int) -> dict[tuple[int, ...], Any]:
        """Vectors by their indices, of a known size each: together they could be too large."""
        indices = itertools.product(*map(range, extents))
        return {index: self._allocate((self.lanes,)) for index in indices}

    def _copy_keys(self, key_tiles: Any) -> None:
        w, last = self.w, self.w.t - 1
        with (
            T.serial(0, key_tiles) as tile,
            T.serial(0, self.vectors) as vector,
            T.serial(0, w.d) as i,
            T.vectorized(0, self.lanes) as lane,
        ):
            place = vector * self.lanes + lane
            column = tirx.min(tile * self.tile + place, last)
            self.keys[tile, i, place] = self.k[w.k.index(self.at, i, column)]

    def _copy_values(self) -> None:
        w = self.w
        for tile, width in self._value_tiles():
            with (
                T.serial(0, w.t) as row,
                T.serial(0, width) as vector,
                T.vectorized(0, self.lanes) as lane,
            ):
                place = vector * self.lanes + lane
                source = w.v.index(self.at, row, tile * self.tile + place)
                self.values[tile, row, place] = self.v[source]

    def _value_tiles(self) -> list[tuple[int, int]]:
        """Tiles of a value's columns, and how many vectors each has."""
        vectors = self.w.c // self.lanes
        starts = range(0, vectors, self.vectors)
        return [(tile, min(self.vectors, vectors - start)) for tile, start in enumerate(starts)]

    def _row_tiles(self, rows: int, key_tiles: Any) -> None:
        w, lanes = self.w, self.lanes
        scores = self._allocate((rows, key_tiles, self.tile))
        with T.serial(0, tirx.floordiv(w.s + (rows - 1), rows)) as row_tile:
            first = row_tile * rows if rows == 1 else tirx.min(row_tile * rows, w.s - rows)
            highest = self._allocate((rows, lanes))
            total = self._allocate((rows, lanes))
            self._fill(highest, rows, -math.inf)
            with T.serial(0, key_tiles) as tile:
                self._scores(scores, highest, rows, first, tile)
            self._exp(scores, highest, total, rows, key_tiles, self.vectors)
            for tile, width in self._value_tiles():
                self._product(scores, total, rows, first, tile, width)

    def _exp(
        self, scores: Any, highest: Any, total: Any, rows: int, tiles: Any, vectors: int = 1
    ) -> None:
        """exp of what the scores are below the highest one, and its sum, of each row."""
        lanes = self.lanes
        self._over_lanes(highest, rows, tirx.max)
        self._fill(total, rows, 0.0)
        with T.serial(0, tiles) as tile, T.serial(0, vectors) as vector:
            for r in range(rows):
                with T.vectorized(0, lanes) as lane:
                    place = vector * lanes + lane
                    value = scores[r, tile, place] - highest[r, 0]
                    scores[r, tile, place] = tirx.exp(value)
                with T.vectorized(0, lanes) as lane:
                    exp = scores[r, tile, vector * lanes + lane]
                    total[r, lane] = total[r, lane] + exp
        self._over_lanes(total, rows, lambda a, b: a + b)

    def _fill(self, buffer: Any, rows: int, value: float) -> None:
        for r in range(rows):
            with T.vectorized(0, self.lanes) as lane:
                buffer[r, lane] = tirx.const(value, self.w.dtype)

    def _over_lanes(self, buffer: Any, rows: int, combine: Callable[[Any, Any], Any]) -> None:
        """The lanes of each row combined, as a tree, in each of them."""
        whole = T.ramp(0, 1, self.lanes)
        for r in range(rows):
            distance = self.lanes // 2
            while distance:
                others = [(lane + distance) % self.lanes for lane in range(self.lanes)]
                moved = tirx.Shuffle([buffer[r, whole]], others)
                buffer[r, whole] = combine(buffer[r, whole], moved)
                distance //= 2

    def _sums(self, rows: int, vectors: int) -> tuple[Any, list[tuple[int, int]]]:
        """Registers of zeros, and the indices of each."""
        sums = self._registers(rows, vectors)
        parts = list(itertools.product(range(rows), range(vectors)))
        for r, v in parts:
            with T.vectorized(0, self.lanes) as lane:
                sums[r, v][lane] = tirx.const(0.0, self.w.dtype)
        return sums, parts

    def _scores(self, scores: Any, highest: Any, rows: int, first: Any, tile: Any) -> None:
        w, lanes = self.w, self.lanes
        sums, parts = self._sums(rows, self.vectors)
        with T.serial(0, w.d) as i:
            for r, v in parts:
                with T.vectorized(0, lanes) as lane:
                    query = self.q[w.q.index(self.at, first + r, i)]
                    key = self.keys[tile, i, v * lanes + lane]
                    sums[r, v][lane] = sums[r, v][lane] + query * key
        for r, v in parts:
            with T.vectorized(0, lanes) as lane:
                column = tile * self.tile + (v * lanes + lane)
                value = self._logit(sums[r, v][lane], first + r, column)
                scores[r, tile, v * lanes + lane] = value
            with T.vectorized(0, lanes) as lane:
                value = scores[r, tile, v * lanes + lane]
                highest[r, lane] = tirx.max(highest[r, lane], value)

    def _logit(self, score: Any, row: Any, column: Any) -> Any:
        """Scale and mask the score of a row and a column; -inf after the last key."""
        w = self.w
        if w.scale != 1.0:
            score = score * tirx.const(w.scale, w.dtype)
        inside = tirx.min(column, w.t - 1)
        score = w.masked(score, self.masks, self.at, row, inside)
        return w.on_keys(score, column)

    def _product(
        self, scores: Any, total: Any, rows: int, first: Any, tile: int, width: int
    ) -> None:
        w, lanes = self.w, self.lanes
        sums, parts = self._sums(rows, width)
        with T.serial(0, w.t) as j:
            for r, v in parts:
                with T.vectorized(0, lanes) as lane:
                    weight = scores[r, tirx.floordiv(j, self.tile), tirx.floormod(j, self.tile)]
                    value = self.values[tile, j, v * lanes + lane]
                    sums[r, v][lane] = sums[r, v][lane] + weight * value
        for r, v in parts:
            with T.vectorized(0, lanes) as lane:
                column = tile * self.tile + (v * lanes + lane)
                value = self._normal(sums[r, v][lane], total[r, 0])
                self.out[self._place(first + r, column)] = value

    def _normal(self, value: Any, total: Any) -> Any:
        """A sum of values, divided by the sum of their weights."""
        quotient = value / total
        if not self.w.nan_is_zero:
            return quotient
        # The highest score counts as 1 in the sum, unless there is none or it is NaN.
        is_number = total >= tirx.const(0.5, self.w.dtype)
        return tirx.Select(is_number, quotient, tirx.const(0, self.w.dtype))

    def _in_place(self, vectors: Any) -> None:
        """Process one row at a time, reading `vectors` of keys and the values in place."""
        w, lanes = self.w, self.lanes
        scores = self._allocate((1, vectors, lanes))
        with T.serial(0, w.s) as row:
            highest = self._allocate((1, lanes))
            total = self._allocate((1, lanes))
            self._fill(highest, 1, -math.inf)
            with T.serial(0, vectors) as vector:
                products = self._allocate((lanes,))
                start = vector * lanes
                products[T.ramp(0, 1, lanes)] = self._products(row, start)
                with T.vectorized(0, lanes) as lane:
                    value = self._logit(products[lane], row, start + lane)
                    scores[0, vector, lane] = value
                with T.vectorized(0, lanes) as lane:
                    value = scores[0, vector, lane]
                    highest[0, lane] = tirx.max(highest[0, lane], value)
            self._exp(scores, highest, total, 1, vectors)
            for column in range(0, w.c, self.tile):
                width = min(self.vectors, (w.c - column) // lanes)
                self._weighted_values(scores, total, row, column, width)

    def _products(self, row: Any, start: Any) -> Any:
        """A vector of the products of a query with the keys from `start` on."""
        w, lanes = self.w, self.lanes
        whole = T.ramp(0, 1, lanes)
        sums = self._registers(lanes)
        for lane, place in enumerate(places(lanes)):
            key = tirx.min(start + lane, w.t - 1)
            for first in range(0, w.d, lanes):
                query = self.q[self._vector(w.q.index(self.at, row, first))]
                product = query * self.k[self._vector(w.k.index(self.at, first, key))]
                sums[place,][whole] = sums[place,][whole] + product if first else product
        for left, right, *masks in joins(lanes):
            pair = [sums[left,][whole], sums[right,][whole]]
            low, high = (tirx.Shuffle(pair, mask) for mask in masks)
            sums[left,][whole] = low + high
        return sums[0,][whole]

    def _vector(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """The index of a vector that starts at an element."""
        return (*index[:-1], T.ramp(index[-1], 1, self.lanes))

    def _weighted_values(self, scores: Any, total: Any, row: Any, column: int, width: int) -> None:
        """Columns of the result: values times the weights of their keys."""
        w, lanes = self.w, self.lanes
        sums, _ = self._sums(CHAINS, width)

        def add(key: Any, chain: int) -> None:
            for v in range(width):
                with T.vectorized(0, lanes) as lane:
                    weight = scores[0, tirx.floordiv(key, lanes), tirx.floormod(key, lanes)]
                    value = self.v[w.v.index(self.at, key, column + (v * lanes + lane))]
                    sums[chain, v][lane] = sums[chain, v][lane] + weight * value

        whole = tirx.floordiv(w.t, CHAINS)
        with T.serial(0, whole) as step:
            for chain in range(CHAINS):
                add(step * CHAINS + chain, chain)
        with T.serial(0, w.t - whole * CHAINS) as rest:
            add(whole * CHAINS + rest, 0)
        for v in range(width):
            with T.vectorized(0, lanes) as lane:
                value = sums[0, v][lane]
                for chain in range(1, CHAINS):
                    value = value + sums[chain, v][lane]
                place = self._place(row, column + (v * lanes + lane))
                self.out[place] = self._normal(value, total[0, 0])

    def _place(self, row: Any, column: Any) -> tuple[Any, ...]:
        if not self.w.heads_last:
            return (*self.at, row, column)
        batch, head = self.at
        return (batch, row, head * self.w.c + column)


register(OPERATOR, "cpu", NAME, 10, supports, fallback, compute)
