"""Inlining of the elementwise and injective stages of a function into their readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir
from tvm.error import InternalError
from tvm.ir import TensorLoad

from ..tir_visit import nodes_of
from .stages import Stage, body_cost, expensive_calls, nested_extremes, stage_of, stages

KEPT = "baton.kept_stage"
"""Annotation of a block that is computed once, not again wherever its elements are read."""

# A stage whose expression, once for each read of it, is longer than this many operations stays a
# stage: a value that is used twice, twice over, doubles the expression each time.
MAX_INLINED_COST = 400

# Each operand of a floating-point maximum becomes a `let` that is used twice, and TVM's analyzers
# replace a `let` by its value: 24 nested ones compile for minutes, 4 as fast as 1.
MAX_NESTED_EXTREMES = 4


def inline_stages(sch: s_tir.Schedule, keep: Callable[[Stage], bool] = lambda stage: False) -> None:
    """Inline every injective stage that is cheap to compute again where it is read.

    A stage stays in these cases:

    - It calls an expensive function and is read more often than it has elements, as the exp of a
      softmax.
    - Both it and a reader call expensive functions. Nested, their polynomials grow exponentially
      in TVM's code generator, which replaces every `let` by its value.
    - Maxima and minima would nest more than `MAX_NESTED_EXTREMES` deep.
    - `keep` or the block says so, or TVM can't inline it.
    """
    for rv in [stage.rv for stage in stages(sch)]:
        stage = stage_of(sch, rv)  # as it is after the inlining before
        if stage.opaque or stage.is_reduction or keep(stage) or KEPT in stage.block.annotations:
            continue
        consumers = [sch.get(rv) for rv in sch.get_consumers(stage.rv)]
        if not consumers or _inlined_cost(stage, consumers) > MAX_INLINED_COST:
            continue
        nested = nested_extremes(stage.block)
        if nested and nested + max(map(nested_extremes, consumers)) > MAX_NESTED_EXTREMES:
            continue
        if expensive_calls(stage.block) and (
            any(expensive_calls(block) for block in consumers)
            or _executions(sch, stage) > stage.volume
        ):
            continue
        try:
            sch.compute_inline(stage.rv)
        except s_tir.ScheduleError:
            continue


def inline_output_copy(sch: s_tir.Schedule) -> s_tir.Schedule:
    """Let a producer write the output if the last stage only moves it, as after group norm."""
    every = stages(sch)
    if len(every) < 2 or every[-1].opaque or every[-1].is_reduction:
        return sch
    producers = sch.get_producers(every[-1].rv)
    if len(producers) != 1 or len(sch.get_consumers(producers[0])) != 1:
        return sch
    trial = sch.copy()
    try:
        trial.reverse_compute_inline(stages(trial)[-1].rv)
    except (s_tir.ScheduleError, InternalError):  # the latter for a few forms of index
        return sch
    return trial


def _inlined_cost(stage: Stage, consumers: Sequence[Any]) -> int:
    """Operations that the stage becomes in the one of its readers that reads it most often."""
    counts = (
        sum(any(map(node.source.same_as, stage.outputs)) for node in nodes_of(b.body, TensorLoad))
        for b in consumers
    )
    return max([1, *counts]) * body_cost(stage.block)


def _executions(sch: s_tir.Schedule, stage: Stage) -> int:
    names = {str(sch.get(rv).name_hint) for rv in sch.get_consumers(stage.rv)}
    return sum(found.volume for found in stages(sch) if found.name in names)
