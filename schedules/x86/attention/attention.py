"""Attention as one kernel on x86: scores of a few rows at a time, which never leave the cache.

    parallel batch, rows of a task:
      copy the keys as panels (d, tile_t), the values as panels (t, tile_c)
      for each tile of rows:
        scores = q k                      register tiles of rows x tile_t
        lane and row maxima, exp, lane and row sums
        product = exp(...) v              register tiles of rows x tile_c
        out = product / row sums

Panels are copied because a head's rows lie a whole row of all heads apart, so that they would
compete for few cache sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import DataType, te, tirx
from tvm.target import Target

from ...anchor import AnchorRule, sblocks
from ...attention import AttentionWorkload
from ...config import ConfigEntity, options
from ...matmul import unravel
from ...strategy import anchor_attrs, register
from ..conv.register_tile import tiles_in_registers
from ..machine import microkernel
from ..machine.cpu import Machine
from ..matmul.matmul_rules import (
    GOOD_BALANCE,
    MOST_VECTORS,
    RAGGED_ROWS_PENALTY,
    ROWS_PER_COPY,
    tile_cycles,
)

NAME = "attention.x86"

# Approximate cycles of maximum, exp and sum for one vector of scores.
SOFTMAX_CYCLES = 14


# --- compute -----------------------------------------------------------------------------


def compute(
    w: AttentionWorkload,
    config: ConfigEntity,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    *masks: te.Tensor,
) -> Any:
    """q, k, v stored as the workload says, masks of the shapes there -> w.out_shape."""
    rows, lanes = config.val("tile_s"), config.val("lanes")
    tile_t, tile_c = config.val("tile_t"), config.val("tile_c")
    batch, row_tiles = math.prod(w.batch), -(-w.s // rows)
    columns = -(-w.t // tile_t) * tile_t

    def query(b: Any, row: Any, i: Any) -> Any:
        inside = row if w.s % rows == 0 else te.min(row, w.s - 1)
        return q[w.q.index(unravel(b, w.batch), inside, i)]

    keys = _panel(
        "attention_keys",
        (batch, w.d, w.t),
        tile_t,
        lambda b, i, j: k[w.k.index(unravel(b, w.batch), i, j)],
    )
    values = _panel(
        "attention_values",
        (batch, w.t, w.c),
        tile_c,
        lambda b, i, j: v[w.v.index(unravel(b, w.batch), i, j)],
    )
    d = te.reduce_axis((0, w.d), "d")
    scores = te.compute(
        (batch, row_tiles, rows, columns),
        lambda b, tile, i, j: te.sum(
            query(b, tile * rows + i, d) * keys[b, j // tile_t, d, j % tile_t], axis=[d]
        ),
        name="attention_scores",
        attrs=anchor_attrs(NAME, config),
    )

    def logit(b: Any, tile: Any, i: Any, j: Any) -> Any:
        value = scores[b, tile, i, j]
        if w.scale != 1.0:
            value = value * tirx.const(w.scale, w.dtype)
        row = te.min(tile * rows + i, w.s - 1) if w.s % rows else tile * rows + i
        column = te.min(j, w.t - 1) if w.t % tile_t else j
        value = w.masked(value, masks, unravel(b, w.batch), row, column)
        if w.t % tile_t:
            value = w.on_keys(value, j)
        return value

    logits = te.compute((batch, row_tiles, rows, columns), logit, name="attention_logits")
    highest = _over_row(logits, "max", lanes, te.max, te.max)
    exp = te.compute(
        logits.shape,
        lambda b, tile, i, j: te.exp(logits[b, tile, i, j] - highest[b, tile, i]),
        name="attention_exp",
    )
    total = _over_row(exp, "sum", lanes, te.sum, lambda x, y: x + y)
    t = te.reduce_axis((0, w.t), "t")
    product = te.compute(
        (batch, row_tiles, rows, -(-w.c // tile_c) * tile_c),
        lambda b, tile, i, j: te.sum(
            exp[b, tile, i, t] * values[b, j // tile_c, t, j % tile_c], axis=[t]
        ),
        name="attention_product",
    )

    def result(b: Any, row: Any, column: Any) -> Any:
        tile, i = row // rows, row % rows
        value, factor = product[b, tile, i, column], total[b, tile, i]
        if not w.nan_is_zero:
            return value * factor
        # The highest score counts as 1 in the sum, unless there is none or the sum is NaN.
        is_number = factor < tirx.const(2, w.dtype)
        return tirx.Select(is_number, value * factor, tirx.const(0, w.dtype))

    if w.heads_last:
        heads = w.batch[1]
        return te.compute(
            w.out_shape,
            lambda b, row, j: result(b * heads + j // w.c, row, j % w.c),
            name="attention_out",
        )

    def in_order(*index: Any) -> Any:
        *outer, row, column = index
        b: Any = 0
        for i, extent in zip(outer, w.batch):
            b = b * extent + i
        return result(b, row, column)

    return te.compute(w.out_shape, in_order, name="attention_out")


def _panel(
    name: str, shape: tuple[int, int, int], tile: int, read: Callable[[Any, Any, Any], Any]
) -> te.Tensor:
    """(batch, rows, columns) -> (batch, columns / tile, rows, tile), filled with zeros."""
    batch, rows, columns = shape

    def element(b: Any, outer: Any, row: Any, lane: Any) -> Any:
        column = outer * tile + lane
        value = read(b, row, column)
        if columns % tile == 0:
            return value
        return tirx.if_then_else(tirx.likely(column < columns), value, tirx.const(0, value.dtype))

    return te.compute((batch, -(-columns // tile), rows, tile), element, name=name)


def _over_row(
    matrix: te.Tensor, name: str, lanes: int, reduce: Any, combine: Callable[[Any, Any], Any]
) -> te.Tensor:
    """Reduce the last axis, vectors, then lanes as a tree; a sum is returned as its reciprocal."""
    batch, tiles, rows, columns = (int(extent) for extent in matrix.shape)
    chunk = te.reduce_axis((0, columns // lanes), "chunk")
    by_lane = te.compute(
        (batch, tiles, rows, lanes),
        lambda b, tile, i, lane: reduce(matrix[b, tile, i, chunk * lanes + lane], axis=[chunk]),
        name=f"attention_lane_{name}",
    )

    def tree(b: Any, tile: Any, i: Any) -> Any:
        level = [by_lane[b, tile, i, lane] for lane in range(lanes)]
        while len(level) > 1:
            half = len(level) // 2
            level = [combine(level[n], level[n + half]) for n in range(half)]
        return tirx.const(1.0, matrix.dtype) / level[0] if name == "sum" else level[0]

    return te.compute((batch, tiles, rows), tree, name=f"attention_{name}")


# --- schedule ----------------------------------------------------------------------------


class Attention(AnchorRule):
    """Schedule the function of one attention, without anything fused to it."""

    def schedule(self, sch: Any, anchor: Any, config: ConfigEntity, target: Target) -> Any:
        lanes = config.val("lanes")
        machine = Machine.from_target(target)
        block = sblocks(sch)
        sch.compute_inline(block["attention_logits"])

        task, tile = self._output(sch, block["attention_out"], config)
        rows_at = [
            ("attention_product", "tile_c"),
            ("attention_sum", None),
            ("attention_lane_sum", None),
            ("attention_exp", None),
            ("attention_max", None),
            ("attention_lane_max", None),
            ("attention_scores", "tile_t"),
        ]
        for name, columns in rows_at:
            sch.compute_at(block[name], tile, preserve_unit_loops=True)
            if columns is not None:
                self._multiply(sch, block[name], config.val(columns), lanes, machine)
            elif "lane" in name:
                _, lane, chunk = sch.get_loops(block[name])[-3:]
                sch.reorder(chunk, lane)
                sch.vectorize(lane)
                sch.decompose_reduction(block[name], chunk)
            elif name == "attention_exp":
                _, lane = sch.split(sch.get_loops(block[name])[-1], [None, lanes])
                sch.vectorize(lane)
        for name in ("attention_keys", "attention_values"):
            sch.compute_at(block[name], task, preserve_unit_loops=True)
            *_, row, column = sch.get_loops(block[name])
            vector, lane = sch.split(column, [None, lanes])
            sch.reorder(vector, row, lane)
            sch.vectorize(lane)
        return sch

    @staticmethod
    def _output(sch: Any, out: Any, config: ConfigEntity) -> tuple[Any, Any]:
        """Tile the output block; returns a task's loop and that over its row tiles."""
        *outer, row, column = sch.get_loops(out)
        heads = config.val("heads")
        row_task, tile, i = sch.split(row, [None, config.val("task_tiles"), config.val("tile_s")])
        if heads > 1:
            head, column = sch.split(column, [heads, None])
            outer.append(head)
        sch.reorder(*outer, row_task, tile, i, column)
        task = sch.fuse(*outer, row_task)
        sch.parallel(task)
        lanes = config.val("lanes")
        if int(sch.get(column).extent) % lanes == 0:
            _, lane = sch.split(column, [None, lanes])
            sch.vectorize(lane)
        return task, tile

    @staticmethod
    def _multiply(sch: Any, product: Any, columns: int, lanes: int, machine: Machine) -> None:
        """Register tiles of all rows of the tile and `columns` columns."""
        i, j, k = sch.get_loops(product)[-3:]
        tile, vector, lane = sch.split(j, [None, columns // lanes, lanes])
        steps = int(sch.get(k).extent)
        together = microkernel.steps_together(steps, machine)
        unrolled = [i, vector]
        if together > 1:
            k, step = sch.split(k, [None, together])
            unrolled.insert(0, step)
        sch.reorder(tile, k, *unrolled, lane)
        microkernel.mark(sch, tile, steps, machine)
        for loop in unrolled:
            sch.unroll(loop)
        sch.vectorize(lane)
        sch.decompose_reduction(product, k)


# --- fallback ----------------------------------------------------------------------------


def fallback(w: AttentionWorkload, target: Target) -> ConfigEntity:
    """Register tiles and tasks.

    tile_s, tile_t, tile_c: rows of both products' register tiles and the columns of each, by the
    cycles of a k step, plus an eighth of a cycle for each 16 bytes read, times the steps over all
    padded tiles, plus SOFTMAX_CYCLES for each vector of scores. tile_c divides the values' vectors.
    task_tiles: all row tiles of a head, so that its panels are copied once, unless that leaves
    threads idle; then as few as keep ROWS_PER_COPY rows.
    """
    machine = Machine.from_target(target)
    lanes = machine.lanes(w.dtype)
    best: tuple[float, int, int, int] | None = None
    for rows in range(1, min(w.s, machine.vector_registers) + 1):
        first = _columns(rows, w.t, w.d, machine, w.dtype)
        second = _columns(rows, w.c, w.t, machine, w.dtype, only_whole=True)
        if first is None or second is None:
            continue
        softmax = SOFTMAX_CYCLES * rows * -(-w.t // first[1]) * first[1] / lanes
        cost = (first[0] + second[0] + softmax) * -(-w.s // rows)
        if w.s % rows:
            cost *= RAGGED_ROWS_PENALTY
        if best is None or cost < best[0]:
            best = (cost, rows, first[1], second[1])
    assert best is not None
    _, rows, tile_t, tile_c = best
    tiles, batch = -(-w.s // rows), math.prod(w.batch)
    task_tiles = tiles
    least = min(tiles, -(-ROWS_PER_COPY // rows))
    while task_tiles > least:
        if machine.busy(batch * -(-tiles // task_tiles)) >= GOOD_BALANCE:
            break
        task_tiles = max(-(-task_tiles // 2), least)
    return options(
        tile_s=rows,
        tile_t=tile_t,
        tile_c=tile_c,
        lanes=lanes,
        task_tiles=task_tiles,
        heads=w.batch[1] if w.heads_last else 1,
    )


def _columns(
    rows: int, n: int, k: int, machine: Machine, dtype: str, only_whole: bool = False
) -> tuple[float, int] | None:
    """(cycles of one row tile, columns) of the best register tile of `rows` rows."""
    lanes, item = machine.lanes(dtype), DataType(dtype).itemsize
    tiles = tiles_in_registers(machine, [rows], MOST_VECTORS, lambda _, v: v + machine.operations)
    costs = [
        (tile_cycles(rows, v, item, machine, lanes) * -(-n // (v * lanes)) * k, v * lanes)
        for _, v in tiles
        if not only_whole or -(-n // lanes) % v == 0
    ]
    return min(costs, default=None)


def supports(w: AttentionWorkload, target: Target) -> bool:
    """float32 with rows enough to pay for the copies of a head's keys and values, and with
    scores of a row tile that take at most half of L2."""
    machine = Machine.from_target(target)
    scores = 2 * machine.vector_registers * w.t * DataType(w.dtype).itemsize
    return w.dtype == "float32" and w.s >= ROWS_PER_COPY and scores <= machine.l2_bytes // 2


register("attention", "cpu", NAME, 10, supports, fallback, compute, rule=Attention())
