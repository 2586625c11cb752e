"""Transposes that change the innermost axis, through a tile in shared memory.

blockIdx.x = (other axes, tile of r, tile of w)
  shared[r, w] <- in[..., r]     threadIdx.x along r, the innermost axis of the input
  out[..., w] <- shared[r, w]    threadIdx.x along w, the innermost axis of the output
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from .blocks import inline_producers, stages

TILE = 32
ROWS = 8
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
        block = found[0].block
        moved = _moved_operand(schedule.get(block))
        if moved is None:
            return None
        operand, read, write, axis = moved
        loops = schedule.get_loops(block)
        others = [loop for at, loop in enumerate(loops) if at not in (read, write)]
        read_outer, read_inner = schedule.split(loops[read], [None, TILE])
        write_outer, write_inner = schedule.split(loops[write], [None, TILE])
        steps, rows = schedule.split(read_inner, [None, ROWS])
        schedule.reorder(*others, read_outer, write_outer, steps, rows, write_inner)
        block_loop = schedule.fuse(*others, read_outer, write_outer)
        schedule.bind(block_loop, "blockIdx.x")
        schedule.bind(rows, "threadIdx.y")
        schedule.bind(write_inner, "threadIdx.x")
        fetch = schedule.cache_read(block, operand, "shared")
        schedule.compute_at(fetch, block_loop, preserve_unit_loops=True)
        tile_loops = schedule.get_loops(fetch)[1:]
        _, rows, lanes = schedule.split(schedule.fuse(*tile_loops), [None, ROWS, TILE])
        schedule.bind(rows, "threadIdx.y")
        schedule.bind(lanes, "threadIdx.x")
        schedule.storage_align(fetch, 0, axis=axis, factor=TILE, offset=1)
        return schedule


def _moved_operand(block: s_tir.SBlock) -> tuple[int, int, int, int] | None:
    """The operand whose innermost axis is not the output's.

    Returns (operand, r, w, axis), where r and w are the positions of the iterators that run along
    the innermost axis of the operand and of the output, and `axis` is the operand's axis along w.
    """
    positions = {iterator.var: at for at, iterator in enumerate(block.iter_vars)}
    extents = [int(iterator.dom.extent) for iterator in block.iter_vars]
    written = block.writes[0].region[-1].min if len(block.writes) == 1 else None
    if written not in positions or extents[positions[written]] < MIN_EXTENT:
        return None
    write = positions[written]
    for operand, region in enumerate(block.reads):
        indices = [axis.min for axis in region.region]
        if any(int(axis.extent) != 1 for axis in region.region):
            continue
        if not indices or any(index not in positions for index in indices):
            continue
        read = positions[indices[-1]]
        along = [positions[index] for index in indices]
        if read != write and write in along and extents[read] >= MIN_EXTENT:
            return operand, read, write, along.index(write)
    return None
