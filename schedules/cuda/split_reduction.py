"""Long reductions to few outputs, in two stages, so that all of a device takes part.

first     blockIdx.x = (output, part):  threadIdx.x over a part of r, reduced across the block
second    blockIdx.x = output:          threadIdx.x over the parts, reduced across the block
"""

from __future__ import annotations

from math import prod

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.target import Target

from . import limits
from .blocks import Stage, inline_producers, stages
from .stages import bind_stages, fuse_consumers, reduce_in_thread

LONG = 1 << 16  # below, the second kernel costs more than the idle multiprocessors
BLOCKS_PER_SM = 2


class WideReduction(ScheduleRule):
    """Functions with one reduction, to fewer outputs than half of the multiprocessors."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when it has another form, or the reduction no even parts."""
        schedule = s_tir.Schedule(func)
        normalize_prim_func(schedule)
        if any(stage.is_opaque or stage.is_bound for stage in stages(schedule)):
            return None
        inline_producers(schedule)
        reductions = [stage for stage in stages(schedule) if stage.is_reduction]
        if len(reductions) != 1 or len(schedule.get(reductions[0].block).writes) != 1:
            return None
        parts = _parts(reductions[0], limits.of(target).sms)
        if parts is None:
            return None
        is_single = prod(reductions[0].spatial_extents) == 1
        if is_single and schedule.get_consumers(reductions[0].block):
            return None  # TVM 0.27's primitives fail on a single element with an epilogue
        loops = schedule.get_loops(reductions[0].block)
        reduced = schedule.fuse(*loops[-len(reductions[0].reduction_extents) :])
        part, _ = schedule.split(reduced, [parts, None])
        schedule.rfactor(part, 0)
        store = schedule.cache_write(reductions[0].block, 0, "local")
        fuse_consumers(schedule, store)
        reduce_in_thread(schedule, reductions[0].block, store)
        bind_stages(schedule)
        return schedule


def _parts(stage: Stage, sms: int) -> int | None:
    """Number of equal parts to divide the reduction into; None if it is not worth it."""
    width, length = prod(stage.spatial_extents), prod(stage.reduction_extents)
    if -1 in stage.extents or stage.kinds.rstrip("R").strip("S") or length < LONG:
        return None
    if 2 * width > sms:
        return None
    most = BLOCKS_PER_SM * sms // width
    even = [parts for parts in range(2, most + 1) if length % parts == 0]
    return even[-1] if even else None
