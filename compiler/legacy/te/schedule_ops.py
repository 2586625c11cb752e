"""`tvm.te.schedule`'s functions on whole schedules: bounds, statements, automatic inlining."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import te, tirx
from tvm.ir import Range

from .bounds import Bounds
from .dataflow import loads
from .relations import like
from .schedule import Schedule
from .stage import ROOT, Stage
from .statements import Statements


class _Pairs:
    """Pairs as the constructor of a TVM map takes them; an `IterVar` is not a key of a dict."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self._pairs = pairs

    def items(self) -> list[tuple[Any, Any]]:
        return self._pairs


def infer_bound(schedule: Schedule) -> Any:
    """The range of every axis and loop.

    Returns tvm_ffi.Map of IterVar to Range. Axes start where their region does, other loops at 0.
    Raises ScheduleError: the stages do not fit together.
    """
    bounds = Bounds(schedule)
    pairs = []
    for stage in bounds.computed:
        for iter_var in [*stage.all_iter_vars, *stage.threads]:
            low = bounds.low.get(iter_var.var, like(iter_var.var, 0))
            pairs.append((iter_var, Range.from_min_extent(low, bounds.extents[iter_var.var])))
        for leaf in stage.leaf_iter_vars:
            thread = bounds.thread_of(stage, leaf)
            if thread is not None:
                extent = bounds.extents[thread.var]
                pairs.append((thread, Range.from_min_extent(like(thread.var, 0), extent)))
    for stage in schedule.stages:
        if isinstance(stage.op, te.PlaceholderOp):
            continue
        for axis in stage.axes:
            if axis.var not in bounds.extents:
                pairs.append((axis, axis.dom))
    return tvm_ffi.Map(_Pairs(pairs))


def schedule_ops(
    schedule: Schedule, bounds: Any = None, debug_keep_trivial_loop: bool = False
) -> Any:
    """The loops of a schedule as one statement, over buffers of its inputs and outputs.

    `bounds`: ignored: the ranges follow from the schedule. `debug_keep_trivial_loop`: ignored:
    loops of extent 1 are left out.
    """
    del bounds, debug_keep_trivial_loop
    arguments = {}
    for stage in schedule.stages:
        if stage.is_output or isinstance(stage.op, te.PlaceholderOp):
            for index in range(stage.op.num_outputs):
                tensor = stage.op.output(index)
                buffer = tirx.decl_buffer(
                    stage.laid_out(tensor.shape), str(tensor.dtype), stage.name, layout=None
                )
                arguments[stage, index] = buffer
    return Statements(Bounds(schedule), arguments).make()


def auto_inline_injective(schedule: Schedule) -> None:
    """Inline every stage that computes each element from others alone, except outputs."""
    _inline(schedule, lambda stage: True)


def auto_inline_elementwise(schedule: Schedule) -> None:
    """Inline the stages that read each tensor at their own element."""

    def is_elementwise(stage: Stage) -> bool:
        axes = [axis.var for axis in stage.op.axis]
        return all(
            len(indices) == len(axes) and all(i.same_as(a) for i, a in zip(indices, axes))
            for indices in _indices(stage)
        )

    _inline(schedule, is_elementwise)


def auto_inline_broadcast(schedule: Schedule) -> None:
    """Inline the stages that read each tensor at some of their own indices, in order."""

    def is_broadcast(stage: Stage) -> bool:
        axes = [axis.var for axis in stage.op.axis]
        return all(_is_subsequence(indices, axes) for indices in _indices(stage))

    _inline(schedule, is_broadcast)


def _inline(schedule: Schedule, accepts: Callable[[Stage], bool]) -> None:
    whole = {
        schedule[tensor]
        for reader in schedule.stages
        if isinstance(reader.op, te.ExternOp)
        for tensor in reader.op.inputs
    }
    for stage in schedule.stages:
        is_free = stage.attach_type == ROOT and stage.group is None and not stage.is_output
        if stage in whole:  # external operations read tensors
            continue
        if not is_free or not isinstance(stage.op, te.ComputeOp) or len(stage.iter_var_attrs):
            continue
        if not isinstance(stage.op.body[0], tirx.Reduce) and accepts(stage):
            stage.compute_inline()


def _indices(stage: Stage) -> list[list[Any]]:
    return [indices for body in stage.op.body for _, indices in loads(body)]


def _is_subsequence(indices: list[Any], axes: list[Any]) -> bool:
    """Whether the indices are axes in order; constants represent dimensions of one element."""
    left = iter(axes)
    return all(
        isinstance(index, tirx.IntImm) or any(index.same_as(axis) for axis in left)
        for index in indices
    )


# The names of TVM 0.18.
InferBound = infer_bound
ScheduleOps = schedule_ops
AutoInlineBroadcast = auto_inline_broadcast
AutoInlineElemWise = auto_inline_elementwise
AutoInlineInjective = auto_inline_injective
