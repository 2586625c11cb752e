"""The rule for any function of plain blocks: each stage that can't be fused is a kernel.

Stages that only rearrange or map elements are inlined first. What is left are reductions, each
with its elementwise epilogue, and single elementwise stages:

    elementwise      blockIdx.x . threadIdx.x:  out[i] = f(...)
    wide reduction   blockIdx.x . threadIdx.x:  acc = 0;  for r: acc += ...;  out[i] = f(acc)
    long reduction   blockIdx.x = one output:   threadIdx.x over r, reduced across the block
"""

from __future__ import annotations

from math import prod

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from .blocks import Stage, inline_producers, stages
from .limits import WARP

THREADS = 128
MAX_BLOCK_REDUCTION_THREADS = 256
LONG_REDUCTION = 128  # from here on a block of threads shares one output's reduction
MAX_UNROLL = 64
WIDE_OUTPUT = 16384  # outputs that fill a device with one thread each


class Stages(ScheduleRule):
    """Functions whose blocks have only data-parallel and reduction iterators."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when a block is opaque."""
        schedule = s_tir.Schedule(func)
        normalize_prim_func(schedule)  # where it can, one loop for each iterator
        if not stages(schedule) or any(stage.is_opaque for stage in stages(schedule)):
            return None
        inline_producers(schedule)
        bind_stages(schedule)
        return schedule


def bind_stages(schedule: s_tir.Schedule) -> None:
    """Make each unbound stage a kernel."""
    for stage in stages(schedule):
        if stage.is_reduction and not stage.is_bound:
            bind_reduction(schedule, stage)
    for stage in stages(schedule):
        if not stage.is_bound and not stage.is_reduction:
            _bind_spatial(schedule, stage.block)


def bind_reduction(schedule: s_tir.Schedule, stage: Stage) -> None:
    """One kernel of a reduction and of the elementwise stages that only it feeds."""
    if len(schedule.get(stage.block).writes) > 1:
        _bind_tuple_reduction(schedule, stage)
        return
    width, length = prod(stage.spatial_extents), prod(stage.reduction_extents)
    across_threads = length >= LONG_REDUCTION and width < WIDE_OUTPUT
    across_threads |= length >= WARP and _is_row(schedule.get(stage.block))
    store = schedule.cache_write(stage.block, 0, "shared" if across_threads else "local")
    fuse_consumers(schedule, store)
    if across_threads:
        _reduce_across_threads(schedule, stage, store, length)
    else:
        reduce_in_thread(schedule, stage.block, store)


def fuse_consumers(schedule: s_tir.Schedule, store: SBlockRV) -> None:
    """Inline the elementwise stages behind `store` into it, as far as that is possible."""
    while True:
        consumers = schedule.get_consumers(store)
        if len(consumers) != 1:
            return
        try:
            schedule.reverse_compute_inline(consumers[0])
        except s_tir.ScheduleError:
            return


def _bind_spatial(schedule: s_tir.Schedule, block: SBlockRV) -> LoopRV:
    loops = schedule.get_loops(block) or [schedule.add_unit_loop(block)]
    outer, inner = schedule.split(schedule.fuse(*loops), [None, THREADS])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    return inner


def reduce_in_thread(schedule: s_tir.Schedule, block: SBlockRV, store: SBlockRV) -> None:
    """Each thread reduces one output; `store` writes what `block` accumulates."""
    # The accumulator's start stays inside the loop: at a fused, split output the block's
    # bindings are no longer affine, which decompose_reduction asks for.
    thread = _bind_spatial(schedule, store)
    schedule.compute_at(block, thread, preserve_unit_loops=True)
    schedule.annotate(thread, "pragma_auto_unroll_max_step", MAX_UNROLL)
    schedule.annotate(thread, "pragma_unroll_explicit", 0)


def _is_row(block: s_tir.SBlock) -> bool:
    """Whether neighbors in memory are reduced to one result."""
    reduced = [v.var for v in block.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    return all(any(read.region[-1].min.same_as(var) for var in reduced) for read in block.reads)


def _reduce_across_threads(
    schedule: s_tir.Schedule, stage: Stage, store: SBlockRV, length: int
) -> None:
    threads = WARP
    while 2 * threads <= min(length, MAX_BLOCK_REDUCTION_THREADS):
        threads *= 2
    loops = schedule.get_loops(store) or [schedule.add_unit_loop(store)]
    block_loop, one = schedule.split(schedule.fuse(*loops), [None, 1])
    schedule.bind(block_loop, "blockIdx.x")
    schedule.compute_at(stage.block, block_loop, preserve_unit_loops=True)
    # Thread 0 writes the one output: the others fail this split's predicate. It must follow
    # compute_at, which would take all its iterations for outputs.
    _, thread = schedule.split(one, [None, threads])
    schedule.bind(thread, "threadIdx.x")
    reduction = schedule.fuse(*schedule.get_loops(stage.block)[-len(stage.reduction_extents) :])
    _, thread = schedule.split(reduction, [None, threads])
    schedule.bind(thread, "threadIdx.x")


def _bind_tuple_reduction(schedule: s_tir.Schedule, stage: Stage) -> None:
    """Reduce several values, as argmax, one output per thread; TOPI's reduction is innermost."""
    loops = schedule.get_loops(stage.block)
    at = len(loops) - len(stage.reduction_extents)
    spatial, reduction = loops[:at], loops[at:]
    if not spatial:
        spatial = [schedule.add_unit_loop(reduction[0])]
    outer, inner = schedule.split(schedule.fuse(*spatial), [None, THREADS])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    schedule.decompose_reduction(stage.block, reduction[0])
