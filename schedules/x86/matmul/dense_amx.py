"""Dense layers of bytes or bfloat16 by AMX tiles: tasks of rows by 32 or 64 columns, full depth."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import te
from tvm.target import Target

from ...config import ConfigEntity, options
from ...matmul import DenseWorkload, register_dense
from ..conv.register_tile import largest_divisor
from ..machine import amx
from ..machine.dot_product import DOTS, Dot, dot_of
from . import matmul_dot
from .matmul_rules import fallback
from .matmul_tile import tiled_product, view

NAMES = {dot: f"dense_amx_{dot.name}.x86" for dot in DOTS}

COLUMNS = amx.PAIR * amx.TILE_COLUMNS
# Of one nest: the sums stay in L1 until they are read, better if there are few.
MOST_ROWS, FEW_ROWS = 256, 64
# With fewer rows of a tile most of it is idle, and `vpdpbusd` has as much from memory.
LEAST_ROWS = 8


def _pack(dot: Dot, ops: Any, weight: Any, config: ConfigEntity) -> Any:
    """(k, n) -> (n / 32, steps, 2 tiles, k of a step / size, 16, size), n padded with zeros."""
    k, n = (int(extent) for extent in weight.shape)
    weight = ops.pad(weight, ((0, 0), (0, -n % COLUMNS)))
    groups = config.val("groups")
    shape = (k // (groups * dot.size), groups, dot.size, -(-n // COLUMNS))
    apart = ops.reshape(weight, (*shape, amx.PAIR, amx.TILE_COLUMNS))
    return ops.transpose(apart, (3, 0, 4, 1, 5, 2)).astype(dot.weight)


def _compute(dot: Dot, w: DenseWorkload, config: ConfigEntity, left: Any, right: Any) -> te.Tensor:
    """The product, of weights as packed."""
    groups, tile = config.val("groups"), (config.val("tile_m"), config.val("tile_n"))

    def weight(_: Any, k: Any, column: Any) -> Any:
        step, group, part = k // dot.size // groups, k // dot.size % groups, k % dot.size
        lane, inside = column % amx.TILE_COLUMNS, column % COLUMNS // amx.TILE_COLUMNS
        return right[column // COLUMNS, step, inside, group, lane, part]

    reads = w.read_left(left), weight
    found = tiled_product(NAMES[dot], config, w.extents, tile, w.out_dtype, *reads, dot)
    return view(found, w.shape, len(w.lead))


def _supports(dot: Dot, w: DenseWorkload, target: Target) -> bool:
    """The element types of the tiles, constant weights, whole groups."""
    is_own = dot_of(w.dtype, w.rhs_dtype, w.out_dtype) == dot and w.weight is None
    is_whole = w.k % dot.size == 0 and _rows(w.m) >= LEAST_ROWS
    return is_own and is_whole and amx.multiplies(dot, target)


def _rows(m: int) -> int:
    """Choose rows of a loop nest: a divisor of all rows with the fewest tile cycles."""
    return min(
        (rows for rows in range(1, min(m, MOST_ROWS) + 1) if m % rows == 0),
        key=lambda rows: (m // rows * amx.cycles_of_rows(rows), abs(rows - FEW_ROWS)),
    )


def _fallback(dot: Dot, w: DenseWorkload, target: Target) -> ConfigEntity:
    """Use the tasks of the dot product schedule, split into AMX tiles."""
    knobs, columns = fallback(w, target, dot.size), w.extents[2]
    rows = _rows(w.m)
    tiles = w.m // rows
    per_task = -(-knobs.val("tile_m") * knobs.val("task_rows") // rows)
    return options(
        tile_m=rows,
        tile_n=2 * COLUMNS if columns % (2 * COLUMNS) == 0 else COLUMNS,
        block_k=w.k // dot.size,
        groups=largest_divisor(w.k // dot.size, amx.STEP_BYTES // amx.GROUP_BYTES),
        task_order="bnm",
        task_rows=min(per_task, tiles),
    )


class AmxMatmul(matmul_dot.TiledDotMatmul):
    """Schedule a fused function whose anchor is a tiled product by AMX."""

    unrolls_rows = False

    def vector(self, config: ConfigEntity, lanes: int) -> int:
        return config.val("tile_n")

    def _accumulate(
        self,
        sch: Any,
        anchor: Any,
        config: ConfigEntity,
        lanes: int,
        target: Target,
        streams: int = 1,
    ) -> tuple[Any, Any]:
        i, j, k, part = list(sch.get_loops(anchor))[-4:]
        row_tile, row = sch.split(i, [None, config.val("tile_m")])
        step, k = sch.split(k, [None, config.val("groups")])
        sch.reorder(row_tile, step, row, j, k, part)
        amx.by_tiles(sch, anchor, step)
        return row_tile, None


for _dot in DOTS:
    register_dense(
        NAMES[_dot],
        17,
        partial(_supports, _dot),
        partial(_fallback, _dot),
        partial(_compute, _dot),
        pack=partial(_pack, _dot),
        rule=AmxMatmul(),
    )
