"""Schedules for kernels that no log has: drawn at random from MetaSchedule's space."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any

from ...records.auto_scheduler.record import Record
from .candidate import ScheduledModule
from .engine import logged_target, samples, trace_of
from .options import LocalBuilder, LocalRunner

if TYPE_CHECKING:
    from ..task import SearchTask

logger = logging.getLogger("baton.auto_scheduler")

# What TVM 0.18 measured samples with.
_MIN_REPEAT_MS = 300


def sample(task: SearchTask, num_measure: int, source: str) -> Record | None:
    """A schedule of a task: the fastest of some, or any.

    The same task gives the same candidates each time.

    `num_measure`: candidates to measure; a valid one is taken unmeasured if it is not positive.
    Returns a record without costs if nothing was measured, and None if no schedule is valid, or
    none runs.
    """
    seed = zlib.crc32(task.workload_key.encode()) % (2**31 - 2) + 1  # what TVM takes
    try:
        schedules = samples(task, max(num_measure, 1), seed)
    except Exception as error:  # a kernel or a target that MetaSchedule's rules can't handle
        logger.warning("%s can't be sampled: %s", task, error)
        return None
    if not schedules:
        logger.warning("%s: no valid schedule was found", task)
        return None
    best, costs = (schedules[0], ()) if num_measure <= 0 else _fastest(task, schedules)
    if best is None:
        return None
    trace = trace_of(best)
    return Record(task.workload_key, logged_target(task.target), trace, costs, source=source)


def _fastest(task: SearchTask, schedules: list[Any]) -> tuple[Any, tuple[float, ...]]:
    candidates = [ScheduledModule.of(schedule.mod, task.target) for schedule in schedules]
    builder, runner = LocalBuilder(), LocalRunner(min_repeat_ms=_MIN_REPEAT_MS)
    try:
        results = runner.run(candidates, builder.build(candidates))
    finally:
        builder.close()
        runner.close()
    right = [i for i, result in enumerate(results) if result.is_right]
    if not right:
        logger.warning("%s: none of %d samples runs: %s", task, len(results), results[0].error_msg)
        return None, ()
    best = min(right, key=lambda i: sum(results[i].costs) / len(results[i].costs))
    return schedules[best], tuple(results[best].costs)
