"""Dense layers of bytes, or of bfloat16, by AMX tiles.

A task is as one of `matmul_dots`, with a register tile of up to 32 rows and 32 columns over the
whole depth.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm.target import Target

from ..anchor import register_anchor_rule
from ..config import ConfigEntity, option
from ..matmul import DenseWorkload
from ..strategy import Implementation, register
from . import amx, matmul_dots
from .dots import DOTS, Dot, dot_of
from .matmul_rules import fallback
from .matmul_tile import product

NAMES = {dot: f"dense_amx_{dot.name}.x86" for dot in DOTS}

# With fewer rows of a tile most of it is idle, and `vpdpbusd` has as much from memory.
LEAST_ROWS = 8


def _rows(w: DenseWorkload) -> int:
    """Of a tile: tiles are whole."""
    return next(rows for rows in range(min(w.m, 32), 0, -1) if w.m % rows == 0)


def _supports(dot: Dot, w: DenseWorkload, target: Target) -> bool:
    """The element types of the tiles, constant weights, whole steps, one axis of rows."""
    is_own = dot_of(w.dtype, w.rhs_dtype, w.out_dtype) == dot and w.weight is None
    one_axis = sum(extent > 1 for extent in w.lead) == 1
    is_whole = w.k % amx.steps_of(dot) == 0
    return (
        is_own and one_axis and is_whole and _rows(w) >= LEAST_ROWS and amx.multiplies(dot, target)
    )


def _fallback(dot: Dot, w: DenseWorkload, target: Target) -> ConfigEntity:
    """The tasks of dot products, in tiles of their own."""
    knobs = fallback(w, target, dot.size)
    rows = _rows(w)
    per_task = -(-knobs.val("tile_m") * knobs.val("task_rows") // rows)
    tiles = w.m // rows
    return ConfigEntity(
        {
            "tile_m": option(rows),
            "tile_n": option(2*amx.TILE_COLUMNS),
            "block_k": option(w.k // dot.size),
            "task_order": option("bnm"),
            "task_rows": option(min(per_task, tiles)),
        }
    )


class AmxMatmul(matmul_dots.TiledDotMatmul):
    """Takes a fused function whose anchor is a tiled product by AMX: one call for each tile."""

    def __init__(self, dot: Dot) -> None:
        super().__init__()
        self.dot = dot

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
        row_tile, ii = sch.split(i, [None, config.val("tile_m")])
        # A loop of its own, which the sums start in front of.
        start, k = sch.split(k, [1, None])
        sch.reorder(start, ii, j, k, part)
        amx.by_tiles(sch, anchor, start)
        return row_tile, None


for _dot in DOTS:
    register(
        "nn.dense",
        "cpu",
        Implementation(
            NAMES[_dot],
            17,
            partial(_supports, _dot),
            partial(_fallback, _dot),
            partial(product, NAMES[_dot], dot=_dot),
            DenseWorkload.stored_args,
            partial(matmul_dots.pack, _dot),
        ),
    )
    register_anchor_rule(NAMES[_dot], AmxMatmul(_dot))
