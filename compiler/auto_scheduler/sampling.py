"""Builds whose kernels without a record take random schedules."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import RecordError
from ..primfuncs.query import has_reduction
from ..records.auto_scheduler.dispatcher import ApplyHistoryBest, Records
from ..records.auto_scheduler.record import Record
from ..records.log_target import LogTarget, log_target
from ..records.untrusted_json import mean_seconds
from .require_extras import check_installed
from .search.candidate import ScheduledModule
from .search.engine import logged_target, samples, trace_of
from .search.options import LocalBuilder, LocalRunner
from .task import SearchTask

if TYPE_CHECKING:
    from tvm.target import Target
    from tvm.tirx import PrimFunc

logger = logging.getLogger("baton.auto_scheduler")

# What TVM 0.18 measured samples with.
_MIN_REPEAT_MS = 300


class ApplyHistoryBestOrSample(ApplyHistoryBest):
    """Build kernels from the best records of logs, and those without one from random schedules.

    A kernel is sampled once; its source is "auto_scheduler:<sample>:1", "...:2" and so on. Records
    of smaller shapes serve their multiples.

    Parameters
    ----------
    records : path, iterable of paths and Records, or None
    sample_simple_workloads : bool
        Sample kernels without a reduction too.
    cost_model_file : None
        Only measuring tells candidates apart.
    num_measure : int
        Candidates of each kernel that are measured, of which the fastest is kept; by default none
        is, and any valid one is taken.

    Raises
    ------
    RecordError
        A file that can't be read or has no record at all, a cost model, or a package that tuning
        needs is not installed.
    """

    def __init__(
        self,
        records: Records | None,
        sample_simple_workloads: bool = False,
        cost_model_file: str | os.PathLike | None = None,
        num_measure: int = -1,
    ) -> None:
        if cost_model_file is not None:
            raise RecordError(
                "cost_model_file is not supported; give num_measure to keep the fastest of that "
                "many candidates"
            )
        check_installed("cloudpickle", "psutil")
        super().__init__([] if records is None else records, include_compatible=True)
        self.sample_simple_workloads = sample_simple_workloads
        self.num_measure = num_measure
        self._samples: dict[tuple[LogTarget, str], Record | None] = {}

    def find_all(self, target: LogTarget, workload_key: str) -> Iterator[Record]:
        yield from super().find_all(target, workload_key)
        sample = self._samples.get((target, workload_key))
        if sample is not None:
            yield sample

    def content_digest(self) -> str | None:
        return None  # samples are random

    def sample(self, target: Target, func: PrimFunc) -> Record | None:
        """A random schedule; None for a kernel without a reduction, or if none is valid."""
        if not self.sample_simple_workloads and not has_reduction(func):
            return None
        task = SearchTask(func, target=target)
        place = (log_target(target), task.workload_key)
        if place not in self._samples:
            source = f"auto_scheduler:<sample>:{len(self._samples) + 1}"
            self._samples[place] = _sample(task, self.num_measure, source)
        return self._samples[place]


def _sample(task: SearchTask, num_measure: int, source: str) -> Record | None:
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
    with LocalBuilder() as builder, LocalRunner(min_repeat_ms=_MIN_REPEAT_MS) as runner:
        results = runner.run(candidates, builder.build(candidates))
    right = [i for i, result in enumerate(results) if result.is_right]
    if not right:
        logger.warning("%s: none of %d samples runs: %s", task, len(results), results[0].error_msg)
        return None, ()
    best = min(right, key=lambda i: mean_seconds(results[i].costs))
    return schedules[best], tuple(results[best].costs)
