"""Select the tuned configs that beat the fallback config of a build without records.

A tuning run measures thousands of configs a few times each; the apparent winner owes part
of its rate to luck. So the best few of each operator are measured again, in turn with the fallback.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schedules import strategy
from schedules.config import ConfigEntity

from ..measure.candidate import FAILED_COST, MeasureErrorNo
from ..records.autotvm.record import MeasureInput
from ..records.autotvm.workload import digest
from ..records.measure_result import MeasureResult
from ..records.untrusted_json import mean_seconds
from .measure import release
from .task import Task, TaskCandidate

# Among finalists whose times are this close there is no winner but the fallback.
LEAST_GAIN = 0.03
FINALISTS = 3


@dataclass
class Comparison:
    """The finalists for one operator and shape."""

    tasks: list[Task]  # the implementations that can compute it
    # What a build takes without records; None where that can't be measured
    fallback: TaskCandidate | None
    finalists: list[TaskCandidate]
    # Time of the fallback, if there is one, then of each finalist; see `undisturbed`
    seconds: list[float] = field(default_factory=list)

    @property
    def candidates(self) -> list[TaskCandidate]:
        """All that are measured, the fallback first."""
        return [*([self.fallback] if self.fallback else []), *self.finalists]

    @property
    def fallback_seconds(self) -> float:
        """Time of the fallback; infinite without one."""
        return self.seconds[0] if self.fallback else float("inf")

    @property
    def winner(self) -> tuple[TaskCandidate, float] | None:
        """The fastest finalist and its time, if it clearly beats the fallback."""
        first = 1 if self.fallback else 0
        times = self.seconds[first:]
        if not times:
            return None
        best = min(range(len(times)), key=times.__getitem__)
        clearly = times[best] < self.fallback_seconds * (1 - LEAST_GAIN)
        return (self.finalists[best], times[best]) if clearly else None

    def record(self) -> tuple[MeasureInput, MeasureResult] | None:
        """The winner as a record."""
        if self.winner is None:
            return None
        candidate, seconds = self.winner
        task, config = candidate.task, candidate.config
        inp = MeasureInput(task.target, task.logged, config, config.index)
        return inp, MeasureResult((seconds,), MeasureErrorNo.NO_ERROR, seconds, time.time())


def comparisons(
    tasks: Sequence[Task], records: Iterable[tuple[MeasureInput, Any]], finalists: int = FINALISTS
) -> list[Comparison]:
    """Group library tasks for one target by what they compute, with their best configs."""
    costs: dict[bytes, list[tuple[float, ConfigEntity]]] = {}
    for inp, result in records:
        seconds = mean_seconds(result.costs, result.error_no)
        if seconds < math.inf:
            held = costs.setdefault(digest(inp.task.workload), [])
            held.append((seconds, inp.config))
    groups: dict[tuple, list[Task]] = {}
    for task in tasks:
        key = (task.tunable.operator.name, repr(_shape_of(task)))
        groups.setdefault(key, []).append(task)
    return [_comparison(group, costs, finalists) for group in groups.values()]


def _shape_of(task: Task) -> Any:
    """The workload; for matrix products, whose workloads say more, their extents."""
    workload = task.tunable.workload
    if hasattr(workload, "k") and hasattr(workload, "n"):
        return (getattr(workload, "batch", ()), workload.m, workload.n, workload.k, workload.dtype)
    return workload


def _comparison(
    tasks: list[Task], costs: dict[bytes, list[tuple[float, ConfigEntity]]], finalists: int
) -> Comparison:
    fallback = _fallback(tasks)
    measured = [
        (cost, TaskCandidate(task, config))
        for task in tasks
        for cost, config in costs.get(digest(task.workload), [])
    ]
    chosen: dict[str, TaskCandidate] = {}
    own = _identity(fallback) if fallback else ""
    for _, candidate in sorted(measured, key=lambda pair: pair[0]):
        known = candidate.task.config_space.index_of(candidate.config)
        if known is None:
            continue
        candidate = TaskCandidate(candidate.task, candidate.task.config_space.get(known))
        if _identity(candidate) != own:
            chosen.setdefault(_identity(candidate), candidate)
        if len(chosen) == finalists:
            break
    return Comparison(tasks, fallback, list(chosen.values()))


def _fallback(tasks: Sequence[Task]) -> TaskCandidate | None:
    """The candidate that a build without records uses, if it is one of the tasks."""
    tunable, target = tasks[0].tunable, tasks[0].target
    found = strategy.select(tunable.operator.name, tunable.workload, target)
    if found is None:
        return None
    implementation, config = found
    task = next((task for task in tasks if task.name == implementation.name), None)
    return None if task is None else TaskCandidate(task, config)


def _identity(candidate: TaskCandidate) -> str:
    knobs = [
        (name, kind, value[1:] if kind == "sp" else value)
        for name, kind, value in candidate.config.to_entity()
    ]
    return f"{candidate.task.name} {knobs}"


def run_comparisons(
    open_comparisons: Sequence[Comparison], option: dict[str, Any], rounds: int = 5
) -> None:
    """Measure each comparison's candidates in turn, `rounds` times."""
    for comparison in open_comparisons:
        candidates = comparison.candidates
        if comparison.finalists:
            comparison.seconds = seconds_in_turn(candidates, **option, rounds=rounds)
        else:
            comparison.seconds = [FAILED_COST] * len(candidates)


def seconds_in_turn(
    candidates: Sequence[Any], builder: Any, runner: Any, rounds: int
) -> list[float]:
    """Build candidates and run them in turn; the `undisturbed` time of each."""
    builds = builder.build(candidates)
    times: list[list[float]] = [[] for _ in candidates]
    for _ in range(rounds):
        for taken, result in zip(times, runner.run(candidates, builds), strict=True):
            taken.append(min(result.costs))
    release(builds)
    return [undisturbed(taken) for taken in times]


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile of times: other work on the machine only ever adds to them."""
    return sorted(times)[len(times) // 4]
