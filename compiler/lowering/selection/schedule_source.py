"""Sources of a build's schedules, read from the dispatch contexts of the thread.

`docs/architecture.md` has the table of contexts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tvm.target import Target
from tvm.tirx import PrimFunc

from schedules.config import ConfigEntity

from ...records.auto_scheduler import dispatcher as auto_scheduler
from ...records.auto_scheduler.record import Record
from ...records.autotvm import dispatcher as autotvm
from ...records.autotvm import log_benchmark
from ...records.autotvm.workload import digest, normalize, to_tuple


@dataclass
class QueryCount:
    """Distinct workloads that were asked for, and found or not."""

    # Workload to the source of its record, "auto_scheduler:<log>:<line>"
    found: dict[Any, str] = field(default_factory=dict)
    missing: set[Any] = field(default_factory=set)  # workloads without a record

    def note(self, workload: Any, source: str | None) -> None:
        if source is None:
            self.missing.add(workload)
        else:
            self.found[workload] = source
            self.missing.discard(workload)


@dataclass(frozen=True)
class ScheduleSource:
    """Dispatch contexts from when a build began, also for threads, which inherit no contexts."""

    # Whether kernels are computed the way TOPI schedules want them from the start
    use_topi_schedule: bool
    extracting: bool  # the build stands inside `extract_tasks`: no records, no schedules
    _autotvm: tuple[autotvm.DispatchContext, ...]
    _auto_scheduler: tuple[auto_scheduler.DispatchContext, ...]
    autotvm_queries: QueryCount = field(default_factory=QueryCount)  # queries so far
    auto_scheduler_queries: QueryCount = field(default_factory=QueryCount)
    # Source and both times of each AutoTVM record that was used although the build was once
    # measured as faster without it on this machine
    slower: dict[str, str] = field(default_factory=dict)
    _taken: Counter[tuple[int, bytes]] = field(default_factory=Counter)

    @property
    def record_contexts(self) -> tuple[auto_scheduler.DispatchContext, ...]:
        """The auto_scheduler contexts, innermost first; none while tasks are extracted."""
        return () if self.extracting else self._auto_scheduler

    @property
    def prefers_fastest(self) -> bool:
        """Whether an auto_scheduler record gives way to what is faster without it."""
        return any(context.prefer == "fastest" for context in self.record_contexts)

    @property
    def has_ansor_records(self) -> bool:
        """Whether a log of TVM's old auto_scheduler is among the contexts."""
        return any(context.has_ansor for context in self.record_contexts)

    def content_digest(self) -> str | None:
        """Digest of the contexts' possible answers; None if that can't be determined."""
        digests = [each.content_digest() for each in self._autotvm]
        digests += [each.content_digest() for each in self._auto_scheduler]
        if self.extracting or None in digests:
            return None
        return repr((digests, self.use_topi_schedule, log_benchmark.content_digest()))

    @staticmethod
    def from_contexts() -> ScheduleSource:
        extracting = auto_scheduler.is_extracting()
        records = auto_scheduler.active_contexts()
        no_records = isinstance(records[0], auto_scheduler.FallbackContext)
        return ScheduleSource(
            use_topi_schedule=no_records and not extracting,
            extracting=extracting,
            _autotvm=autotvm.active_contexts(),
            _auto_scheduler=records,
        )

    def autotvm_known(self, target: Any, workload: Any) -> ConfigEntity | None:
        """Look up the config that `autotvm_query` would return, without counting it as used.

        A context that prefers the fastest measures configs that are not measured yet.
        """
        if self.extracting:
            return None
        for config in autotvm.records_for(self._autotvm, target, workload, self._taken):
            if self._autotvm[config.level].prefer != "fastest":
                return config
            measured = log_benchmark.measured(target, workload, config)
            if measured is None or measured.log_wins:
                return config
        return None

    def autotvm_query(self, target: Any, workload: Any) -> ConfigEntity | None:
        """Config of the AutoTVM workload (task name, *arguments) for an operator, or None."""
        if self.extracting:
            return None
        config = self.autotvm_known(target, workload)
        if config is not None:
            self._taken[config.level, digest(workload)] += 1
        if config is not None and config.source not in self.slower:
            found = log_benchmark.kept(target, workload, config)
            if found is not None and not found.log_wins:
                self.slower[config.source] = str(found)
        self.autotvm_queries.note(
            to_tuple(normalize(workload)), None if config is None else config.source
        )
        return config

    def passed_over(self, targets: Iterable[Any], names: Collection[str]) -> list[str]:
        """A line for each record of an implementation that the build was not to choose.

        `names` are looked up under the arguments of all implementations that were asked for: those
        of one operator have the same arguments. `targets`: of the build's functions.
        """
        asked = {*self.autotvm_queries.found, *self.autotvm_queries.missing}
        workloads = {(name, *args) for _, *args in asked for name in names}
        found = {
            (str(config.source), str(workload[0]))
            for target in {str(target): target for target in targets}.values()
            for workload in workloads
            if (config := self.autotvm_known(target, workload)) is not None
        }
        return [f"{source}: not used, {name} is disabled" for source, name in sorted(found)]

    def auto_scheduler_query(self, target: Any, workload_key: str) -> Record | None:
        """Record of the unscheduled kernel `workload_key`, or None."""
        if self.extracting:
            return None
        record = auto_scheduler.query_contexts(self._auto_scheduler, target, workload_key)
        self.auto_scheduler_queries.note(workload_key, None if record is None else record.source)
        return record

    def auto_scheduler_sample(
        self, target: Target, func: PrimFunc, workload_key: str
    ) -> Record | None:
        """A record that a context samples for an unscheduled kernel without one, or None."""
        for context in self.record_contexts:
            record = context.sample(target, func)
            if record is not None:
                self.auto_scheduler_queries.note(workload_key, record.source)
                return record
        return None
