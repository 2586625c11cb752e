"""Choose static kernels for any number of rows on x86; `symbolic` combines them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tvm import DataType, s_tir, tirx
from tvm.target import Target

from ...anchor import blocks, with_annotations
from ...config import ConfigEntity, option
from ...dynamic_rows import Rows, Tiling
from ...generic.stages import stages, work
from ..injective import PARALLEL_WORK
from ..machine import prefetch
from ..machine.cpu import Machine
from ..matmul import low_bit_matmul
from ..matmul.dense import PACKED
from ..matmul.matmul_tile import SEVERAL_TILES

NOMINAL_ROWS = 128
"""The number of rows that the register tile of a product is chosen for."""
WIDE_ROW = 16
"""Rows of this many elements are vectorized singly; narrower rows are grouped into tiles."""
NARROW_ROWS = 64


def static_kernels(
    rows: Rows, target: Target
) -> tuple[dict[int, tirx.PrimFunc], dict[int, Tiling]] | None:
    """Unscheduled kernels by row count, one of one row, and their loops; None if there is none."""
    anchors = [block for block in blocks(rows.func) if "schedule_config" in block.annotations]
    if not anchors:
        return _plain(rows)
    names = {str(block.annotations["schedule_rule"]) for block in anchors}
    if names < {low_bit_matmul.FLOATS, low_bit_matmul.INT8}:
        return _product_of_bits(rows, anchors[0], target)
    return _product(rows, anchors[0], target) if names == {PACKED} else None


def _plain(rows: Rows) -> tuple[dict[int, tirx.PrimFunc], dict[int, Tiling]]:
    """A row at a time; where rows are narrow, a few dozen."""
    one = rows.static(1)
    each = work(stages(s_tir.Schedule(one)))
    least = -(-PARALLEL_WORK // max(each, 1))
    if rows.widest >= WIDE_ROW:
        return {1: one}, {1: Tiling(parallel_from=least)}
    kernels = {NARROW_ROWS: rows.static(NARROW_ROWS), 1: one}
    return kernels, {NARROW_ROWS: Tiling(parallel_from=-(-least // NARROW_ROWS)), 1: Tiling()}


def _product(
    rows: Rows, anchor: Any, target: Target
) -> tuple[dict[int, tirx.PrimFunc], dict[int, Tiling]]:
    """Register tiles of fewer and fewer rows, on the same panels of weights.

    Only tiles of more than half of the largest one's rows are ever several.
    """
    config = ConfigEntity.from_entity(json.loads(str(anchor.annotations["schedule_config"])))
    depth = int(anchor.iter_vars[-1].dom.extent)
    most = int(config.val("tile_m"))
    machine = Machine.from_target(target)
    item = DataType(str(anchor.writes[0].source.dtype)).itemsize
    resident = max(machine.l2_bytes // 2 // (most * depth * item), 1)
    kernels = {
        size: _with_tile(rows.static(size), config, size, depth, 2 * size > most)
        for size in _sizes(most)
    }
    own = Tiling(inside=True, resident=resident, marks=((prefetch.ROWS, prefetch.WHOLE),))
    tilings = {**dict.fromkeys(kernels, own), most: replace(own, parallel_from=1)}
    return kernels, tilings


def _product_of_bits(
    rows: Rows, anchor: Any, target: Target
) -> tuple[dict[int, tirx.PrimFunc], dict[int, Tiling]]:
    """Eight rows at a time, or four, two, one, on the same panels of weights."""
    config = ConfigEntity.from_entity(json.loads(str(anchor.annotations["schedule_config"])))
    panels = int(anchor.iter_vars[1].dom.extent)
    machine = Machine.from_target(target)
    kernels, size = {}, low_bit_matmul.MOST_ROWS // 2  # addresses of more fill the registers
    while size:
        vectors = low_bit_matmul.vectors_of(size, panels, machine)
        text = ConfigEntity({**config.knobs, "vectors": option(vectors)}).dumps()
        kernels[size] = _with_config(rows.static(size), text)
        size //= 2
    return kernels, dict.fromkeys(kernels, Tiling())


def _sizes(most: int) -> list[int]:
    """Numbers of rows of the tiles: each up to eight, then two thirds of the next larger one."""
    sizes = [most]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] - 1 if sizes[-1] <= 8 else sizes[-1] * 2 // 3)
    return sizes


def _with_tile(
    func: tirx.PrimFunc, config: ConfigEntity, size: int, depth: int, several: bool
) -> tirx.PrimFunc:
    """The function with a register tile of `size` rows, all of its rows."""
    knobs = {
        **{name: config.knobs[name] for name in config.knobs},
        "tile_m": option(size),
        "block_k": option(depth),
        "task_order": option("bnm"),
        "task_rows": option(1),
    }
    if several:
        knobs[SEVERAL_TILES] = option(True)
    return _with_config(func, ConfigEntity(knobs).dumps())


def _with_config(func: tirx.PrimFunc, text: str) -> tirx.PrimFunc:
    return with_annotations(
        func,
        lambda found: {**found, "schedule_config": text} if "schedule_config" in found else found,
    )
