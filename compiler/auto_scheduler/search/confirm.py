"""The time of a task's untuned kernel, and which records beat it, measured again in turn.

The fastest looking of many measurements owes part of its rate to luck.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tvm

from ...autotvm.confirm import FINALISTS, LEAST_GAIN, seconds_in_turn
from ...autotvm.measure import measure_batch
from ...errors import BatonError, RecordError
from ...lowering.selection.default_kernel import library_kernels
from ...lowering.selection.extract import alone
from ...records.auto_scheduler.record import Record, replay
from ...records.auto_scheduler.workload import ENTRY
from .candidate import ScheduledModule, device_kind, plain_config
from .engine import logged_target
from .templates import TemplateCandidate

if TYPE_CHECKING:
    from ..task import SearchTask


logger = logging.getLogger("baton.auto_scheduler")


def measure_untuned(task: SearchTask, builder: Any, runner: Any) -> Record | None:
    """Measure the kernel as Baton's schedule library builds it.

    Returns the summed times of the kernels that do the task's work; changes of
    layout at the task's edges are not counted, since a network makes them elsewhere. None if the
    task was not extracted from a model, so that its operators are unknown, or if it does not build.
    """
    if task.origin is None:
        return None
    mod, function, bindings = task.origin
    try:
        kernels = library_kernels(alone(mod, function, bindings), task.target)
    except BatonError as error:
        logger.warning("%s has no schedule to compare with: %s", task.desc, error)
        return None
    candidates = [_module(kernel.func, task.target) for kernel in kernels]
    results = measure_batch({"builder": builder, "runner": runner}, candidates)
    wrong = next((result for result in results if not result.is_right), None)
    if wrong is not None or not results:
        reason = "no kernel" if wrong is None else wrong.error_msg
        logger.warning("%s can't be measured without tuning: %s", task.desc, reason)
        return None
    repeats = min(len(result.costs) for result in results)
    costs = tuple(
        sum(r.costs[i] * kernel.calls for r, kernel in zip(results, kernels, strict=True))
        for i in range(repeats)
    )
    return Record(task.workload_key, logged_target(task.target), [[], []], costs, untuned=True)


@dataclass(frozen=True)
class Comparison:
    """A task's untuned kernel and its best records."""

    task: SearchTask
    # With the time that the comparison found; None where it can't be measured
    untuned: Record | None
    finalists: tuple[Record, ...]  # with such times

    @property
    def untuned_seconds(self) -> float:
        """Seconds of a call; infinite where that can't be measured."""
        return math.inf if self.untuned is None else self.untuned.cost

    @property
    def winner(self) -> Record | None:
        """The fastest record, if it clearly beats the untuned kernel."""
        best = min(self.finalists, key=lambda record: record.cost, default=None)
        if best is None or not best.cost < self.untuned_seconds * (1 - LEAST_GAIN):
            return None
        return best

    @property
    def best_seconds(self) -> float:
        """Seconds of a call of what is used."""
        return self.untuned_seconds if self.winner is None else self.winner.cost

    @property
    def kind(self) -> str:
        """The schedule in use: "untuned", a template's name, or "rules"."""
        if self.winner is None:
            return "untuned"
        return "rules" if self.winner.template is None else self.winner.template.task


def run_comparison(
    task: SearchTask, records: Sequence[Record], builder: Any, runner: Any, rounds: int
) -> Comparison:
    """Measure a task's untuned kernel and its best records in turn, `rounds` times."""
    untuned = next((record for record in records if record.untuned), None)
    tried = sorted((r for r in records if not r.untuned), key=lambda record: record.cost)
    finalists = [record for record in tried[:FINALISTS] if math.isfinite(record.cost)]
    entrants = [*([untuned] if untuned else []), *finalists]
    if untuned is None or not finalists:
        return Comparison(task, untuned, tuple(finalists))
    groups = [_candidates(task, record) for record in entrants]
    flat = [candidate for group in groups for candidate, _ in group]
    calls = [count for group in groups for _, count in group]
    taken = seconds_in_turn(flat, builder, runner, rounds)
    seconds = iter(each * count for each, count in zip(taken, calls, strict=True))
    timed = [
        replace(record, costs=(sum(next(seconds) for _ in group),), tir=None)
        if group
        else replace(record, costs=(), error=1)
        for record, group in zip(entrants, groups, strict=True)
    ]
    return Comparison(task, timed[0], tuple(timed[1:]))


def _candidates(task: SearchTask, record: Record) -> list[tuple[Any, int]]:
    """The kernels of a record with their calls; none where it does not apply any more."""
    target = task.target
    if record.untuned or record.template is not None:
        assert task.origin is not None, "only extracted tasks have such records"
        operators = alone(*task.origin)
        if record.template is not None:
            text = str(tvm.ir.save_json(operators))
            config, device = plain_config(target), device_kind(target)
            return [(TemplateCandidate(text, config, device, record.template), 1)]
        return [
            (_module(kernel.func, target), kernel.calls)
            for kernel in library_kernels(operators, target)
        ]
    try:
        return [(_module(replay(record, task.func, target), target), 1)]
    except RecordError:
        return []


def _module(func: Any, target: Any) -> ScheduledModule:
    return ScheduledModule.of(tvm.IRModule({ENTRY: func.with_attr("global_symbol", ENTRY)}), target)
