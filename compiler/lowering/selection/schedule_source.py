"""Sources of a build's schedules, read from the dispatch contexts of the thread.

`docs/architecture.md` has the table of contexts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
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
from ...records.log_target import log_target
from ..report import LogUse

_LOST = (
    "this thread has entered no {} context, but another thread has; contexts belong to the thread "
    "that enters them: enter one here, or submit contextvars.copy_context().run"
)


_OTHER = "another record or implementation was chosen"
UNTUNED = "untuned: no schedule that was measured beats the default kernel"


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
    # By source and `digest` of the workload of a record that could not be used, why
    skipped: dict[tuple[str, bytes], str] = field(default_factory=dict)
    # Source of each record that was found for a workload of the build
    offered: set[str] = field(default_factory=set)
    # Remarks on contexts that the calling thread lacks, for the report
    notes: tuple[str, ...] = ()
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
        digests = [None if c.is_user_defined() else c.content_digest() for c in self._autotvm]
        digests += [
            None if c.is_user_defined() else c.content_digest() for c in self._auto_scheduler
        ]
        if self.extracting or None in digests:
            return None
        return repr((digests, self.use_topi_schedule, log_benchmark.content_digest()))

    @staticmethod
    def from_contexts() -> ScheduleSource:
        extracting = auto_scheduler.is_extracting()
        records = auto_scheduler.DispatchContext.active()
        no_records = isinstance(records[0], auto_scheduler.FallbackContext)
        families = (autotvm.DispatchContext, auto_scheduler.DispatchContext)
        lost = [family.kind for family in families if family.is_only_elsewhere()]
        notes = [_LOST.format(kind) for kind in lost if not extracting]
        return ScheduleSource(
            use_topi_schedule=no_records and not extracting,
            extracting=extracting,
            _autotvm=autotvm.DispatchContext.active(),
            _auto_scheduler=records,
            notes=tuple(notes),
        )

    def autotvm_known(self, target: Any, workload: Any) -> ConfigEntity | None:
        """Look up the config that `autotvm_query` would return, without counting it as used.

        A context that prefers the fastest measures configs that are not measured yet.
        """
        if self.extracting:
            return None
        lost = -1  # level of the context whose best record was slower
        for config in autotvm.records_for(self._autotvm, target, workload, self._taken):
            self.offered.add(config.source)
            if config.level == lost or (config.source, digest(workload)) in self.skipped:
                continue
            if self._autotvm[config.level].prefer != "fastest":
                return config
            measured = log_benchmark.measured(target, workload, config)
            if measured is None or measured.log_wins:
                return config
            lost = config.level
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

    def skip(self, failed: Collection[str]) -> bool:
        """Use AutoTVM records of these sources no more; whether any was in use."""
        found = self.autotvm_queries.found.items()
        new = {(source, digest(workload)) for workload, source in found if source in failed}
        new.difference_update(self.skipped)
        self.skipped.update(dict.fromkeys(new, "its schedule can't be applied to the kernel"))
        return bool(new)

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

    def auto_scheduler_query(
        self, target: Any, workload_key: str, fits: Callable[[Record], bool] = lambda _: True
    ) -> Record | None:
        """Best record of the unscheduled kernel `workload_key` that `fits`, or None."""
        if self.extracting:
            return None
        record = None
        for found in auto_scheduler.records_for(self._auto_scheduler, target, workload_key):
            self.offered.add(found.source)
            if fits(found):
                record = found
                break
        self.auto_scheduler_queries.note(workload_key, None if record is None else record.source)
        return record

    def log_uses(self, target: Any, used: Collection[str]) -> list[LogUse]:
        """Count the use of each log by the build; `used`: sources of its kernels' schedules."""
        reasons = {source: reason for (source, _), reason in self.skipped.items()}
        described, uses = log_target(target), []
        families: list[tuple[str, Sequence[Any]]] = [
            ("topi", self._autotvm),
            ("auto_scheduler", self._auto_scheduler),
        ]
        for kind, contexts in families:
            rows = [row for context in contexts for row in context.log_counts(described)]
            for name, records, for_target in dict.fromkeys(rows):
                found = {s for s in self.offered if s.rpartition(":")[0] == f"{kind}:{name}"}
                skipped = [
                    (int(source.rpartition(":")[2]), reasons.get(source, _OTHER))
                    for source in found.difference(used)
                ]
                lines = [f"{line}: {reason}" for line, reason in sorted(skipped)]
                used_here = len(found.intersection(used))
                uses.append(LogUse(name, kind, records, for_target, len(found), used_here, lines))
        return uses

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
