"""Transposes that change the innermost axis, through a tile in shared memory.

blockIdx.x = (other axes, tile of r, tile of w)
  shared[w, r] <- in[..., r]     threads along r, the innermost axis of the input
  out[..., w] <- shared[w, r]    threads along w, the innermost axis of the output

Axes that stay neighbors, as height and width between NCHW and NHWC, are one. Where words of 4 bytes
divide both axes, a thread moves words: two float16, four int8. Then the threads that read one word
of shared memory are in one warp. Rows there are a word longer than their tile, so that reads along
w have no bank conflicts.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from .blocks import inline_producers, stages

TILE = 32
ROWS = 8
WORD = 4  # bytes
MIN_EXTENT = 16  # below, too little of a tile would be used


class Transpose(ScheduleRule):
    """Elementwise functions that read one input with another innermost axis than they write."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when no operand's innermost axis is moved."""
        schedule = s_tir.Schedule(func)
        if any(stage.is_opaque or stage.is_reduction for stage in stages(schedule)):
            return None
        inline_producers(schedule)
        found = stages(schedule)
        if len(found) != 1 or -1 in found[0].extents:
            return None
        moved = _moved_operand(schedule.get(found[0].block))
        if moved is None:
            return None
        operand, axes = moved
        block = schedule.get(found[0].block)
        used = (block.reads[operand], *block.writes)
        itemsize = min(tvm.DataType(str(each.source.dtype)).itemsize for each in used)
        write = next(axis for axis in axes if len(block.iter_vars) - 1 in axis)
        sizes = [prod(found[0].extents[at] for at in axis) for axis in (axes[-1], write)]
        if min(sizes) < MIN_EXTENT:
            return None
        lanes = WORD // itemsize if all(size * itemsize % WORD == 0 for size in sizes) else 1
        # Rows of a whole warp, unless shorter ones waste less of their last tile
        length = min((TILE * lanes, TILE), key=lambda each: -(-sizes[0] // each) * each)
        return _through_shared(schedule, operand, axes, length, lanes)


def _moved_operand(block: s_tir.SBlock) -> tuple[int, list[list[int]]] | None:
    """An operand that is read with another innermost axis than the output is written.

    Returns its number, and the positions of the block's iterators for each of its axes: iterators
    that are neighbors in both tensors are one axis; those that it does not have come first.
    """
    positions = {iterator.var: at for at, iterator in enumerate(block.iter_vars)}
    if len(block.writes) != 1 or _along(block.writes[0], positions) != [*positions.values()]:
        return None
    for operand, region in enumerate(block.reads):
        along = _along(region, positions)
        if not along or len(positions) - 1 not in along[:-1]:
            continue
        axes: list[list[int]] = []
        for at in sorted(set(positions.values()) - set(along)) + along:
            if axes and at in along and axes[-1][-1] == at - 1 in along:
                axes[-1].append(at)
            else:
                axes.append([at])
        return operand, axes
    return None


def _along(region: Any, positions: dict[Any, int]) -> list[int]:
    """Positions of the iterators that index a region; [] for other indices."""
    found = [positions.get(axis.min, -1) for axis in region.region]
    return [] if -1 in found or any(int(axis.extent) != 1 for axis in region.region) else found


def _through_shared(
    schedule: s_tir.Schedule, operand: int, axes: list[list[int]], length: int, lanes: int
) -> s_tir.Schedule:
    """Bind tiles with rows of this length; a thread moves `lanes` elements at once."""
    (stage,) = stages(schedule)
    block, extents, rank = stage.block, stage.extents, len(stage.extents)

    def fused(*indices: Any) -> list[Any]:
        return [reduce(lambda i, at: i * extents[at] + indices[at], axis, 0) for axis in axes]

    index_map = tirx.IndexMap.from_func
    schedule.transform_block_layout(block, index_map(fused, ndim=rank))
    same = index_map(lambda *indices: list(indices), ndim=len(axes))
    store = schedule.reindex_cache_write(block, 0, "local", same) if lanes > 1 else block
    fetch = schedule.reindex_cache_read(block, operand, "shared", same)
    write = next(at for at, axis in enumerate(axes) if rank - 1 in axis)
    loops = schedule.get_loops(store)
    others = [loop for at, loop in enumerate(loops) if at not in (write, len(axes) - 1)]
    r, steps, rows, word = schedule.split(loops[-1], [None, length // ROWS // lanes, ROWS, lanes])
    w, words, lane = schedule.split(loops[write], [None, TILE // lanes, lanes])
    schedule.reorder(*others, r, w, steps, rows, word, words, lane)
    tile = schedule.fuse(*others, r, w)
    thread = schedule.fuse(word, words)
    schedule.bind(tile, "blockIdx.x")
    schedule.bind(rows, "threadIdx.y")
    schedule.bind(thread, "threadIdx.x")
    if lanes > 1:
        schedule.vectorize(lane)
        schedule.compute_at(block, thread, preserve_unit_loops=True)
        schedule.unroll(schedule.get_loops(block)[-1])
    schedule.compute_at(fetch, tile, preserve_unit_loops=True)
    tile_loops = schedule.get_loops(fetch)[1:]
    _, rows, thread, lane = schedule.split(schedule.fuse(*tile_loops), [None, ROWS, TILE, lanes])
    schedule.bind(rows, "threadIdx.y")
    schedule.bind(thread, "threadIdx.x")
    schedule.vectorize(lane)
    schedule.storage_align(fetch, 0, axis=write, factor=length, offset=lanes)
    return schedule
