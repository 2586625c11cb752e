"""TE schedules of TOPI's computes, for scripts that asked `tvm.topi` for one.

One rule for all operators, on the stages that are left when what is computed element by element
is inlined into its readers:

    CPU   for outer axes, fused:            parallel
            for inner axes, reduction:
              for 16 elements:              vectorized, where nothing is reduced

    GPU   for blocks of 256 elements:       blockIdx.x
            for elements of a block:        threadIdx.x
              for reduction:

    GPU   for elements:                     blockIdx.x     few elements, each the sum of many
            for 256 parts of the sum:       threadIdx.x

They compute the right thing on all cores. The schedules that are tuned are those of `schedules`,
which `relay.build` and AutoTVM's tasks choose.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx
from tvm.target import Target

from .relations import constant
from .schedule import Schedule, create_schedule
from .schedule_ops import auto_inline_injective
from .stage import INLINE, INLINED_ALREADY

_LANES = 16
_THREADS = 256
# From how many terms on, and up to how many results, threads share one sum.
_LONG_SUM = 64
_FEW_SUMS = 4096


def is_gpu(target: Any = None) -> bool:
    """Whether a target, or else the current one, is a GPU."""
    target = Target.current() if target is None else Target(target)
    return target is not None and "gpu" in [str(key) for key in target.keys]


def schedule_default(outs: Any) -> Schedule:
    """Loops as the computes are declared, one after the other."""
    tensors = [outs] if isinstance(outs, te.Tensor) else outs
    return create_schedule([tensor.op for tensor in tensors])


def schedule_outputs(outs: Any, gpu: bool = False) -> Schedule:
    """A schedule for outputs of any computes; see above. `gpu`: for a GPU instead of the CPU."""
    schedule = schedule_default(outs)
    auto_inline_injective(schedule)
    for stage in list(schedule.stages):
        is_inlined = stage.attach_type in (INLINE, INLINED_ALREADY)
        if isinstance(stage.op, te.ComputeOp) and not is_inlined:
            schedule_stage(schedule, stage.op, gpu)
    return schedule


def schedule_stage(schedule: Schedule, op: Any, gpu: bool = False) -> Schedule:
    """Schedule one stage of a schedule as above, and return the schedule.

    Loops of no turn stay as they are: nothing divides by their extents.
    """
    if any(constant(axis.dom.extent) == 0 for axis in schedule[op].op.axis):
        return schedule
    if gpu:
        _on_gpu(schedule, op)
    else:
        _on_cpu(schedule, op)
    return schedule


def _on_cpu(schedule: Schedule, op: Any) -> None:
    stage, axes = schedule[op], list(schedule[op].op.axis)
    if not axes:
        return
    count = 3 if len(axes) >= 5 else 2 if len(axes) >= 3 else 1
    outer = stage.fuse(*axes[:count]) if count > 1 else axes[0]
    extent = axes[-1].dom.extent
    wide = isinstance(extent, tirx.IntImm) and int(extent) >= _LANES
    if not stage.op.reduce_axis and wide:
        above, inner = stage.split(axes[-1], factor=_LANES)
        stage.vectorize(inner)
        outer = above if len(axes) == 1 else outer
    stage.parallel(outer)


def _on_gpu(schedule: Schedule, op: Any) -> None:
    stage = schedule[op]
    axes, sums = list(stage.op.axis), list(stage.op.reduce_axis)
    if not axes:  # a loop of one turn, to be bound
        if sums and stage.op.num_outputs == 1:
            _shared_sum(schedule, op, None, sums)
        return
    fused = stage.fuse(*axes) if len(axes) > 1 else axes[0]
    results, terms = _count(axes), _count(sums)
    is_single = stage.op.num_outputs == 1
    if sums and is_single and terms >= _LONG_SUM and 0 < results <= _FEW_SUMS:
        _shared_sum(schedule, op, fused, sums)
        return
    block, thread = stage.split(fused, factor=_THREADS)
    stage.bind(block, te.thread_axis("blockIdx.x"))
    stage.bind(thread, te.thread_axis("threadIdx.x"))


def _shared_sum(schedule: Schedule, op: Any, fused: Any, sums: list[Any]) -> None:
    """One block for each result: its threads sum up parts, then each other's sums."""
    stage = schedule[op]
    whole = stage.fuse(*sums) if len(sums) > 1 else sums[0]
    _, inner = stage.split(whole, factor=_THREADS)
    parts = schedule.rfactor(op.output(0), inner)
    stage = schedule[op]
    across = stage.op.reduce_axis[0]
    thread = te.thread_axis("threadIdx.x")
    stage.bind(across, thread)
    schedule[parts].compute_at(stage, across)
    stage.set_store_predicate(thread.var.equal(0))
    if fused is not None:
        stage.bind(stage.leaf_iter_vars[0], te.thread_axis("blockIdx.x"))


def _count(axes: list[Any]) -> int:
    """Number of points of the axes together; 0 if it is dynamic."""
    extents = [axis.dom.extent for axis in axes]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return 0
    return math.prod(int(extent) for extent in extents)
