"""Attention over numbers of queries and keys that only running tells, as one kernel on x86.

The same steps as those of `attention.x86`, in loops that are written out, since no schedule
primitive tiles an unknown number of keys:

    parallel batch and heads:
      copy the keys as panels (d, TILE), the values as panels (t, TILE)
      for each tile of rows, the last one of which ends with the last row:
        scores = q k * scale + mask       register tiles of rows x TILE; -inf behind the last key
        row maxima, exp, row sums
        out = exp(...) v / row sums       register tiles of rows x TILE
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

from ..attention import AttentionWorkload
from ..config import ConfigEntity, option
from ..strategy import Implementation, register
from .machine import Machine
from .matmul_tile import unravel

NAME = "attention_rows.x86"
OPERATOR = "attention_rows"
ROW_TILES = (6, 4, 2, 1)
"""Rows of the register tiles; the last one serves any number of queries."""


def supports(w: AttentionWorkload, target: Target) -> bool:
    """float32, with whole vectors of known lengths as queries, keys and values."""
    machine = Machine.from_target(target)
    known = isinstance(w.d, int) and isinstance(w.c, int)
    return w.dtype == "float32" and known and w.c % machine.lanes(w.dtype) == 0


def fallback(w: AttentionWorkload, target: Target) -> ConfigEntity:
    """Register tiles of four vectors, or two where there are 16 registers."""
    machine = Machine.from_target(target)
    vectors = 4 if machine.vector_registers >= 32 else 2
    return ConfigEntity({"lanes": option(machine.lanes(w.dtype)), "vectors": option(vectors)})


def compute(
    w: AttentionWorkload,
    config: ConfigEntity,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    mask: te.Tensor | None = None,
) -> te.Tensor:
    """q, k, v stored as the workload says, mask of shape `w.mask` -> w.out_shape."""
    operands = [q, k, v, *([] if mask is None else [mask])]
    return te.extern(
        [w.out_shape],
        operands,
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
        self.q, self.k, self.v, *masks = map(T.buffer_proxy, self.ins)
        self.mask = masks[0] if masks else None
        (self.out,) = map(T.buffer_proxy, self.outs)
        heads: Any = 1
        for extent in w.batch:
            heads = heads * extent
        key_tiles = tirx.floordiv(w.t + (self.tile - 1), self.tile)
        with T.parallel(0, heads) as head:
            self.at = unravel(head, w.batch)
            self.keys = self._allocate((key_tiles, w.d, self.tile))
            self.values = self._allocate((-(-w.c // self.tile), w.t, self.tile))
            self._copy_keys(key_tiles)
            self._copy_values()
            needed = tirx.floordiv(w.s + (ROW_TILES[0] - 1), ROW_TILES[0])
            each = tirx.floordiv(w.s + (needed - 1), tirx.max(needed, 1))
            bounds = zip(ROW_TILES, (*ROW_TILES[1:], 0))
            for rows, fewer in bounds:
                larger = [size for size in ROW_TILES if size > rows]
                # Taken if it is the smallest tile that is enough, or the largest that fits.
                fits = tirx.And(w.s >= rows, each > fewer) if rows > 1 else w.s >= 1
                for size in larger:
                    above = ROW_TILES[ROW_TILES.index(size) + 1]
                    fits = tirx.And(fits, tirx.Not(tirx.And(w.s >= size, each > above)))
                with T.If(fits), T.Then():
                    self._row_tiles(rows, key_tiles)

    def _allocate(self, shape: tuple[Any, ...], scope: str = "global") -> Any:
        return T.buffer_proxy(T.alloc_buffer(shape, self.w.dtype, scope=scope))

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
            highest = self._allocate((rows, lanes), "local")
            total = self._allocate((rows, lanes), "local")
            self._fill(highest, rows, -math.inf)
            with T.serial(0, key_tiles) as tile:
                self._scores(scores, highest, rows, first, tile)
            self._over_lanes(highest, rows, tirx.max)
            self._fill(total, rows, 0.0)
            with T.serial(0, key_tiles) as tile, T.serial(0, self.vectors) as vector:
                for r in range(rows):
                    with T.vectorized(0, lanes) as lane:
                        place = vector * lanes + lane
                        value = scores[r, tile, place] - highest[r, 0]
                        scores[r, tile, place] = tirx.exp(value)
                    with T.vectorized(0, lanes) as lane:
                        exp = scores[r, tile, vector * lanes + lane]
                        total[r, lane] = total[r, lane] + exp
            self._over_lanes(total, rows, lambda a, b: a + b)
            for tile, width in self._value_tiles():
                self._product(scores, total, rows, first, tile, width)

    def _fill(self, buffer: Any, rows: int, value: float) -> None:
        for r in range(rows):
            with T.vectorized(0, self.lanes) as lane:
                buffer[r, lane] = tirx.const(value, self.w.dtype)

    def _over_lanes(self, buffer: Any, rows: int, combine: Callable[[Any, Any], Any]) -> None:
        """The lanes of each row combined in its first one, as a tree."""
        for r in range(rows):
            level = [buffer[r, lane] for lane in range(self.lanes)]
            while len(level) > 1:
                half = len(level) // 2
                level = [combine(level[n], level[n + half]) for n in range(half)]
            buffer[r, 0] = level[0]

    def _scores(self, scores: Any, highest: Any, rows: int, first: Any, tile: Any) -> None:
        w, lanes = self.w, self.lanes
        sums = self._allocate((rows, self.vectors, lanes), "local")
        parts = list(itertools.product(range(rows), range(self.vectors)))
        for r, v in parts:
            with T.vectorized(0, lanes) as lane:
                sums[r, v, lane] = tirx.const(0.0, w.dtype)
        with T.serial(0, w.d) as i:
            for r, v in parts:
                with T.vectorized(0, lanes) as lane:
                    query = self.q[w.q.index(self.at, first + r, i)]
                    key = self.keys[tile, i, v * lanes + lane]
                    sums[r, v, lane] = sums[r, v, lane] + query * key
        for r, v in parts:
            with T.vectorized(0, lanes) as lane:
                column = tile * self.tile + (v * lanes + lane)
                value = sums[r, v, lane]
                if w.scale != 1.0:
                    value = value * tirx.const(w.scale, w.dtype)
                if self.mask is not None:
                    inside = tirx.min(column, w.t - 1)
                    value = value + self.mask[w.mask_index(self.at, first + r, inside)]
                hidden = tirx.const(-math.inf, w.dtype)
                scores[r, tile, v * lanes + lane] = tirx.Select(column < w.t, value, hidden)
            with T.vectorized(0, lanes) as lane:
                value = scores[r, tile, v * lanes + lane]
                highest[r, lane] = tirx.max(highest[r, lane], value)

    def _product(
        self, scores: Any, total: Any, rows: int, first: Any, tile: int, width: int
    ) -> None:
        w, lanes = self.w, self.lanes
        sums = self._allocate((rows, width, lanes), "local")
        parts = list(itertools.product(range(rows), range(width)))
        for r, v in parts:
            with T.vectorized(0, lanes) as lane:
                sums[r, v, lane] = tirx.const(0.0, w.dtype)
        with T.serial(0, w.t) as j:
            for r, v in parts:
                with T.vectorized(0, lanes) as lane:
                    weight = scores[r, tirx.floordiv(j, self.tile), tirx.floormod(j, self.tile)]
                    value = self.values[tile, j, v * lanes + lane]
                    sums[r, v, lane] = sums[r, v, lane] + weight * value
        for r, v in parts:
            with T.vectorized(0, lanes) as lane:
                value = sums[r, v, lane] / total[r, 0]
                if w.nan_is_zero:
                    # The highest score counts as 1 in the sum, unless there is none or it is NaN.
                    is_number = total[r, 0] >= tirx.const(0.5, w.dtype)
                    value = tirx.Select(is_number, value, tirx.const(0, w.dtype))
                column = tile * self.tile + (v * lanes + lane)
                self.out[self._place(first + r, column)] = value

    def _place(self, row: Any, column: Any) -> tuple[Any, ...]:
        if not self.w.heads_last:
            return (*self.at, row, column)
        batch, head = self.at
        return (batch, row, head * self.w.c + column)


register(OPERATOR, "cpu", Implementation(NAME, 10, supports, fallback, compute))
