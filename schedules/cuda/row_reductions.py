"""Rows that are reduced and then mapped, as softmax and layer norm have them, in one kernel.

short rows   blockIdx.x . threadIdx.y = row, threadIdx.x over it: a warp each, no barrier
long rows    blockIdx.x = row, threadIdx.x over it: as many threads as take the least time

Every reduction goes over the row in memory again; what stands between them is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.schedule import LoopRV
from tvm.target import Target

from ..strategy import PREDICTED_SECONDS_ATTR
from . import device as devices
from .blocks import Stage, inline_producers, stages
from .device import Device
from .limits import WARP

THREADS = (32, 64, 128, 256, 512, 1024)
"""Threads that share a row."""
WARPS = 4
"""Warps of a block with one warp per row, where there are enough rows."""
UNROLLED = 8
"""Elements that a thread reads at a time."""
BARRIER_CYCLES = 60
ELEMENT_BYTES = 4
READ_LATENCIES = 1 / 4
"""Memory latencies per read on average: all reads of a row but the first hit a cache."""


class RowReductions(ScheduleRule):
    """Functions that reduce rows to one value each and then map all elements to results."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when it has another form."""
        schedule = s_tir.Schedule(func)
        normalize_prim_func(schedule)
        found = stages(schedule)
        if not found or any(stage.is_opaque or stage.is_bound for stage in found):
            return None
        inline_producers(schedule)
        found = stages(schedule)
        reductions = [stage for stage in found if stage.is_reduction]
        last, *casts = found[len(reductions) :] or found
        rows = _leading(found[: len(reductions)], last)
        if rows is None or any(each.extents != last.extents for each in casts):
            return None
        loops = schedule.get_loops(last.block)
        column = schedule.fuse(*loops[rows:])
        row = schedule.fuse(*loops[:rows]) if rows else schedule.add_unit_loop(column)
        device = devices.of(target)
        count, length = prod(last.extents[:rows]), prod(last.extents[rows:])
        predicted, threads = Rows(count, length, len(reductions) + 1).seconds(device)
        if threads == WARP:
            warps = WARPS if count >= WARPS * device.limits.sms else 1
            block, row = schedule.split(row, [None, warps])
            schedule.bind(block, "blockIdx.x")
            schedule.bind(row, "threadIdx.y")
        else:
            schedule.bind(row, "blockIdx.x")
        step = _share(schedule, column, threads)
        for stage in casts:
            schedule.reverse_compute_at(stage.block, step, preserve_unit_loops=True)
        for stage in reversed(reductions):
            for at in range(len(schedule.get(stage.block).writes)):
                schedule.set_scope(stage.block, at, "local")
            schedule.compute_at(stage.block, row, preserve_unit_loops=True)
            reduced = schedule.get_loops(stage.block)[-len(stage.reduction_extents) :]
            _share(schedule, schedule.fuse(*reduced), threads)
        predicted += device.launch_seconds
        return s_tir.Schedule(schedule.mod["main"].with_attr(PREDICTED_SECONDS_ATTR, predicted))


@dataclass(frozen=True)
class Rows:
    """Rows that a first stage computes, and that later stages of its kernel reduce and map."""

    count: int
    length: int
    passes: int  # over a row: one for each reduction, and the last

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Rows | None:
        """The rows of the stages of `func` after the first two; None where the form is another."""
        schedule = s_tir.Schedule(func)
        normalize_prim_func(schedule)
        _, first, *found = stages(schedule)
        reductions = [stage for stage in found if stage.is_reduction]
        last, *casts = found[len(reductions) :] or found
        rows = _leading(found[: len(reductions)], last) if reductions else len(last.extents) - 1
        if rows is None or any(each.extents != last.extents for each in (first, *casts)):
            return None
        return cls(prod(last.extents[:rows]), prod(last.extents[rows:]), len(reductions) + 1)

    def seconds(self, device: Device, more: int = 0) -> tuple[float, int]:
        """Time without the launch, and threads per row, with that many additional passes."""
        passes = self.passes + more
        return min((seconds(self.count, self.length, passes, n, device), n) for n in THREADS)

    def adding_seconds(self, device: Device, parts: int) -> float:
        """Time to compute the rows from partial sums: a pass, by the multiprocessors with rows."""
        more = self.seconds(device, more=1)[0] - self.seconds(device)[0]
        read = ELEMENT_BYTES * parts * self.length * -(-self.count // device.limits.sms)
        return more + read / device.l2_bytes_per_cycle / device.hertz

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule:
        """Schedule a function as one kernel, with a block for each row.

        Its second stage computes the rows from an element that the first one has in a register.
        They are kept in shared memory; if they are a result, they are also copied to memory.
        """
        schedule = s_tir.Schedule(func)
        normalize_prim_func(schedule)
        element, first, *found = stages(schedule)
        last, casts = found[self.passes - 1], found[self.passes :]
        blocks = [stage.block for stage in found[: self.passes]]
        threads = self.seconds(devices.of(target), more=1)[1]
        try:
            schedule.set_scope(first.block, 0, "shared")
        except s_tir.ScheduleError:  # a result
            readers = schedule.get_consumers(first.block)
            blocks.insert(0, schedule.cache_write(first.block, 0, "shared", readers))
        rows = next(n for n in range(len(last.extents)) if prod(last.extents[:n]) == self.count)
        loops = schedule.get_loops(first.block)
        column = schedule.fuse(*loops[rows:])
        row = schedule.fuse(*loops[:rows]) if rows else schedule.add_unit_loop(column)
        schedule.bind(row, "blockIdx.x")
        step = _share(schedule, column, threads)
        schedule.compute_at(element.block, step, preserve_unit_loops=True)
        for block in blocks:
            schedule.reverse_compute_at(block, row, preserve_unit_loops=True)
            step = _share(schedule, schedule.fuse(*schedule.get_loops(block)[1:]), threads)
        for stage in casts:
            schedule.reverse_compute_at(stage.block, step, preserve_unit_loops=True)
        for stage in found[: self.passes - 1]:
            for at in range(len(schedule.get(stage.block).writes)):
                schedule.set_scope(stage.block, at, "local")
        return schedule


def _leading(reductions: list[Stage], last: Stage) -> int | None:
    """How many leading iterators of all stages count rows; None where the form is another."""
    if last.is_reduction or not all(stage.is_reduction for stage in reductions):
        return None
    kinds = {stage.kinds.lstrip("S").strip("R") for stage in reductions}
    shapes = {
        (_long(stage.spatial_extents), _long(stage.reduction_extents)) for stage in reductions
    }
    if kinds != {""} or -1 in last.extents:
        return None
    splits = ((last.extents[:rows], last.extents[rows:]) for rows in range(len(last.extents)))
    found = (rows for rows, split in enumerate(splits) if shapes == {tuple(map(_long, split))})
    return next(found, None)


def _long(extents: Sequence[int]) -> tuple[int, ...]:
    """The extents that are not 1."""
    return tuple(extent for extent in extents if extent != 1)


def seconds(rows: int, length: int, passes: int, threads: int, device: Device) -> float:
    """Time without the launch, with this many threads per row and `passes` passes over it."""
    limits = device.limits
    warps = -(-rows * threads // WARP)
    waves = -(-warps // (limits.sms * limits.threads_per_sm // WARP))
    reads = -(-length // (threads * UNROLLED))
    cycles = reads * device.latency_cycles * READ_LATENCIES
    cycles += BARRIER_CYCLES if threads > WARP else 0
    traffic = passes * rows * length * ELEMENT_BYTES / device.l2_bandwidth
    return max(waves * passes * cycles / device.hertz, traffic)


def _share(schedule: s_tir.Schedule, loop: LoopRV, threads: int) -> LoopRV:
    """Divide a loop among the threads along x; the loop of a thread's one element."""
    steps, thread = schedule.split(loop, [None, threads])
    schedule.bind(thread, "threadIdx.x")
    schedule.annotate(steps, "pragma_auto_unroll_max_step", UNROLLED)
    schedule.annotate(steps, "pragma_unroll_explicit", 0)
    return thread
