"""Dispatch contexts of AutoTVM: which tuning records a build in this thread may use.

    with autotvm.apply_history_best("mine.log"):      # asked second
        with autotvm.apply_history_best(other):       # asked first
            lib = relay.build(mod, target, params=params)

Contexts are `contextvars`: other threads do not see a context, and an exception leaves none behind.
A build in a thread without contexts warns if another thread has some.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from schedules.config import ConfigEntity

from ...errors import RecordError
from ...support.scoped_context import NestedContext
from ..log_target import LogTarget, log_target
from ..measure_result import MeasureResult
from ..untrusted_json import mean_seconds
from . import log_benchmark
from .history import BestRecords
from .ranking import rank_line, rank_log
from .record import MeasureInput, load_from_file, scan
from .workload import digest

PREFERENCES = ("log", "fastest")

Record = tuple[MeasureInput, MeasureResult]
Records = str | bytes | os.PathLike | io.TextIOBase | Record | Iterable[Any] | None


def checked_preference(prefer: str) -> str:
    """Return `prefer` if it is valid; else raise RecordError."""
    if prefer not in PREFERENCES:
        raise RecordError(f"prefer={prefer!r}: choose one of {', '.join(PREFERENCES)}")
    return prefer


class DispatchContext(NestedContext, kind="AutoTVM dispatch"):
    """Base of the contexts: looks up records here, then in the outer contexts.

    A user-defined context defines `_query_inside(target, workload)`, as in TVM: it returns the
    `ConfigEntity` of a workload, or None to ask the outer contexts. Builds in it are not cached.
    """

    prefer = "log"

    def query(self, target: Any, workload: Any) -> ConfigEntity | None:
        """Config for (task name, *arguments) from this context, else from those around it.

        The workload is as in AutoTVM logs: ("dense_pack.x86", ("TENSOR", (1, 8), "float32"), ...).
        The config's `source` names the log and line. None when no record matches.

        A context that prefers the fastest passes over a record that this machine once measured
        slower than what a build does without its log. A build also measures what was not measured
        yet.
        """
        contexts = self.with_outer()
        lost = -1  # level of the context whose best record was slower
        for config in records_for(contexts, target, workload):
            known = None
            if config.level == lost:
                continue
            if contexts[config.level].prefer == "fastest":
                known = log_benchmark.kept(target, workload, config)
            if known is None or known.log_wins:
                return config
            lost = config.level
        return None

    def find(self, target: LogTarget, workload: bytes) -> ConfigEntity | None:
        """Config from this context alone; `workload` is a `workload.digest`."""
        raise RecordError(
            f"{type(self).__name__} has no records: define _query_inside(self, target, workload), "
            "which returns a ConfigEntity or None"
        )

    def _query_inside(self, target: Any, workload: Any) -> ConfigEntity | None:
        """Config from this context alone; `workload` is (task name, *arguments)."""
        return self.find(log_target(target), digest(workload))

    @classmethod
    def is_user_defined(cls) -> bool:
        """Whether the class answers by its own `_query_inside`."""
        return cls._query_inside is not DispatchContext._query_inside

    def find_for(self, target: LogTarget, workload: bytes, taken: int) -> ConfigEntity | None:
        """Config for an operator of a build, `taken` of whose operators have one of these already.

        Operators of one workload count together. Most contexts give all of them the same.
        """
        return self.find(target, workload)

    def find_all(
        self, target: LogTarget, workload: bytes, taken: int = 0
    ) -> Iterator[ConfigEntity]:
        """Configs of `find_for`, the best first: the best may not fit its template."""
        config = self.find_for(target, workload, taken)
        return iter(() if config is None else (config,))

    def log_counts(self, target: LogTarget) -> list[tuple[str, int, int]]:
        """(log, its records, those for the target) of each log; see `LogCounts.matching`."""
        return []

    def content_digest(self) -> str | None:
        """Digest that changes with the results of `find`; None if there is no such digest."""
        return None


class FallbackContext(DispatchContext):
    """No records: the outermost context of every thread.

    Entered with `with`, it hides the contexts around it.
    """

    hides_outer = True

    def find(self, target: LogTarget, workload: bytes) -> ConfigEntity | None:
        return None

    def content_digest(self) -> str | None:
        return "no records"


class ApplyConfig(DispatchContext):
    """Apply one config to every workload."""

    def __init__(self, config: ConfigEntity) -> None:
        self.config = config

    def find(self, target: LogTarget, workload: bytes) -> ConfigEntity | None:
        return self.config


class ApplyHistoryBest(DispatchContext):
    """Apply the best record of each workload in tuning logs.

    Parameters
    ----------
    records : path, open text file, (MeasureInput, MeasureResult) pair, or iterable of these
        None for a context without records, to which `load` and `update` add.
    strict : bool
        Raise at a line that is not a record, instead of one warning per file.
    prefer : str
        "log": a record is always used. "fastest": the first build that finds a record measures
        the operator with it and without the log, and the faster is used from then on; see
        `compiler.records.autotvm.log_benchmark`.

    Raises
    ------
    RecordError
        A file that can't be read or has no record at all, or another value of `prefer`.
    """

    def __init__(self, records: Records, strict: bool = False, prefer: str = "log") -> None:
        self.prefer = checked_preference(prefer)
        self._best = BestRecords()
        self._set_by_user: dict[tuple[str, bytes], ConfigEntity] = {}
        self.load(records, strict)

    def load(self, records: Records, strict: bool = False) -> None:
        """Add more records to those already here."""
        if records is None:
            return
        if isinstance(records, (str, bytes, os.PathLike)):
            records = os.fsdecode(records)
            self._best.add_log(Path(records).name, rank_log(records, strict))
        elif isinstance(records, io.TextIOBase):
            self._best.add_log("<buffer>", scan(records, "<buffer>", strict, rank_line))
        elif isinstance(records, tuple) and records and isinstance(records[0], MeasureInput):
            self._best.add_pair(*records)
        elif isinstance(records, Iterable):
            each: Any
            for each in records:
                self.load(each, strict)
        else:
            raise RecordError(
                f"records has a {type(records).__name__}; give paths of logs, open text files, or "
                "pairs of MeasureInput and MeasureResult as load_from_file yields them"
            )

    def update(self, target: Any, workload: Any, config: ConfigEntity) -> None:
        """Set the config of a workload by hand; it goes before every record."""
        described, key = log_target(target), digest(workload)
        for name in (f"model:{described.model}", *(f"key:{k}" for k in described.keys)):
            self._set_by_user[name, key] = config

    def find(self, target: LogTarget, workload: bytes) -> ConfigEntity | None:
        return next(self.find_all(target, workload), None)

    def find_all(
        self, target: LogTarget, workload: bytes, taken: int = 0
    ) -> Iterator[ConfigEntity]:
        """Look up by model, then by each key; user configs before logged ones (TVM 0.18)."""
        del taken
        by_user, best = self._set_by_user, self._best
        configs = [by_user.get((f"model:{target.model}", workload))]
        configs += best.best_of_model(target.model, workload)
        for key in target.keys:
            configs.append(by_user.get((f"key:{key}", workload)))
            configs += best.best_of_key(key, workload)
        seen = set()
        for config in configs:
            if config is not None and config.source not in seen:
                seen.add(config.source)
                yield config

    def log_counts(self, target: LogTarget) -> list[tuple[str, int, int]]:
        return self._best.counts.matching(target)

    def content_digest(self) -> str | None:
        if self.prefer != "log":  # then a measurement decides
            return None
        set_by_user = repr(sorted(self._set_by_user.items(), key=lambda item: item[0]))
        return f"{self._best.content_digest()} {set_by_user}"


apply_history_best = ApplyHistoryBest


class ApplyGraphBest(DispatchContext):
    """Apply the records that a graph tuner chose, one for each convolution of a network.

    A log of the graph tuner has a line for every convolution in the order of execution, and may
    give two convolutions of one workload different configs: the n-th convolution of a workload
    takes the n-th record of it, those beyond the last record take that one.

    Parameters
    ----------
    records : path, or iterable of (MeasureInput, MeasureResult) pairs
    strict : bool
        Raise at a line that is not a record, instead of one warning.

    Raises
    ------
    RecordError
        The file can't be read or has no record at all.
    """

    def __init__(self, records: str | os.PathLike | Iterable[Record], strict: bool = False) -> None:
        if isinstance(records, (str, os.PathLike)):
            records = load_from_file(records, strict)
        self._of_workload: dict[bytes, list[tuple[LogTarget, ConfigEntity]]] = {}
        for inp, result in records:
            if mean_seconds(result.costs, result.error_no) < math.inf:
                configs = self._of_workload.setdefault(digest(inp.task.workload), [])
                configs.append((log_target(inp.target), inp.config))

    def find(self, target: LogTarget, workload: bytes) -> ConfigEntity | None:
        return self.find_for(target, workload, 0)

    def find_for(self, target: LogTarget, workload: bytes, taken: int) -> ConfigEntity | None:
        fitting = [
            config
            for tuned_for, config in self._of_workload.get(workload, ())
            if set(tuned_for.keys) & set(target.keys)
        ]
        if not fitting:
            return None
        return fitting[min(taken, len(fitting) - 1)]

    def content_digest(self) -> str | None:
        return repr(list(self._of_workload.items()))


apply_graph_best = ApplyGraphBest


class ApplyFixedConfig(DispatchContext):
    """Apply the first config of each named task's space, for instance to compare schedules.

    Parameters
    ----------
    tasks : list of Task
    schedule_names : str or list of str
        Names of the tasks to apply; operators with none of them take what is around the context.
    """

    def __init__(self, tasks: Iterable[Any], schedule_names: str | Sequence[str]) -> None:
        self._names = {schedule_names} if isinstance(schedule_names, str) else {*schedule_names}
        self._tasks = {digest(task.workload): task for task in tasks if task.name in self._names}
        if missing := self._names - {task.name for task in self._tasks.values()}:
            raise RecordError(f"no task has the name {', '.join(sorted(missing))}")

    def find(self, target: LogTarget, workload: bytes) -> ConfigEntity | None:
        task = self._tasks.get(workload)
        if task is None:
            return None
        config: ConfigEntity = task.config_space.get(0)
        return replace(config, source=f"topi:<{task.name}>:0", is_fallback=False)


def clear_fallback_cache(target: Any, workload: Any) -> None:
    """Clear the kept fallback config of a workload; there is none, as builds compute it anew."""


DispatchContext.bottom = FallbackContext()


def records_for(
    contexts: Sequence[DispatchContext],
    target: Any,
    workload: Any,
    taken: Mapping[tuple[int, bytes], int] = MappingProxyType({}),
) -> Iterator[ConfigEntity]:
    """Yield configs for a workload, innermost context first, and of each the best first.

    `level` of a config is the context's index.

    `taken`: by level and `workload.digest`, how many operators of the build have a config already.
    """
    described, key = log_target(target), None
    for level, context in enumerate(contexts):
        if isinstance(context, FallbackContext):
            continue
        key = key or digest(workload)
        if context.is_user_defined():
            answer = _checked_config(context, context._query_inside(target, workload))
            configs = iter(() if answer is None else (answer,))
        else:
            configs = context.find_all(described, key, taken.get((level, key), 0))
        for config in configs:
            yield replace(config, level=level)


def _checked_config(context: DispatchContext, config: Any) -> ConfigEntity | None:
    """The answer of a user-defined context; one of a fallback is none."""
    if config is None or getattr(config, "is_fallback", False):
        return None
    if not isinstance(config, ConfigEntity):
        raise RecordError(
            f"{type(context).__name__}._query_inside returned a {type(config).__name__}; return a "
            "ConfigEntity, such as task.config_space.get(index), or None"
        )
    if not config.source.startswith("topi:") or config.source == "topi:fallback":
        return replace(config, source=f"topi:{type(context).__name__}")
    return config
