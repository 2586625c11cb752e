"""Dispatch contexts of auto_scheduler: which records a build in this thread is made from.

    with auto_scheduler.ApplyHistoryBest("mine.json"):
        lib = relay.build(mod, target, params=params)

The build needs no other switch: while such a context is active, kernels are built from records,
and those without one from their TOPI schedules. Contexts are `contextvars`: a context entered in
one thread is not seen by another, and an exception leaves none behind. A build in a thread without
contexts warns if another thread has some.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...support.scoped_context import NestedContext, scoped_value
from ..ansor.record import AnsorRecord, WorkloadKey
from ..autotvm.dispatcher import checked_preference
from ..log_target import LogTarget, log_target
from ..measure_pair import MeasureInput, State
from .history import BestRecords
from .log_index import LogFile
from .record import AnyRecord, Record

if TYPE_CHECKING:
    from tvm.target import Target
    from tvm.tirx import PrimFunc

Records = str | bytes | os.PathLike | AnyRecord | Iterable[Any] | None


class DispatchContext(NestedContext, kind="auto_scheduler"):
    """Base of the contexts: which records each has, and the way to those of the outer ones.

    A user-defined context defines `_query_inside(target, workload_key, func_name)`, as in TVM: it
    returns the `Record` of a kernel or its `State`, or None to ask the outer contexts. Builds in
    it are not cached.
    """

    prefer = "log"

    def query(
        self,
        target: Any,
        workload_key: str,
        has_complex_op: bool = True,
        dag: Any = None,
        func_name: str = "",
    ) -> Record | None:
        """Record of a `workload.workload_key` from this context, else from those around it.

        `has_complex_op`, `dag`: of TVM's signature; they only chose its warnings.
        """
        del has_complex_op, dag
        return next(records_for(self.with_outer(), target, workload_key, func_name), None)

    def find(self, target: LogTarget, workload_key: str) -> Record | None:
        """Record from this context alone."""
        raise RecordError(
            f"{type(self).__name__} has no records: define _query_inside(self, target, "
            "workload_key, func_name), which returns a Record or None"
        )

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> Record | None:
        """Record from this context alone."""
        del func_name
        return self.find(log_target(target), workload_key)

    @classmethod
    def is_user_defined(cls) -> bool:
        """Whether the class answers by its own `_query_inside`."""
        return cls._query_inside is not DispatchContext._query_inside

    def find_all(self, target: LogTarget, workload_key: str) -> Iterator[Record]:
        """Records from this context alone, the best first: the first may turn out not to replay."""
        record = self.find(target, workload_key)
        return iter(() if record is None else (record,))

    def find_ansor(self, target: LogTarget, key: WorkloadKey) -> Iterator[AnsorRecord]:
        """This context's records of a task of Ansor's, the best first."""
        return iter(())

    def find_by_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> Iterator[AnsorRecord]:
        """This context's records of Ansor's for operands of these extents, the best first."""
        return iter(())

    def sample(self, target: Target, func: PrimFunc) -> Record | None:
        """A schedule that this context makes up for an unscheduled kernel without a record."""
        return None

    def log_counts(self, target: LogTarget) -> list[tuple[str, int, int]]:
        """(log, its records, those for the target) of each log; see `LogCounts.matching`."""
        return []

    def content_digest(self) -> str | None:
        """Changes with what this context may answer; None where nothing can say so."""
        return None

    @property
    def has_ansor(self) -> bool:
        """Whether there is any record of Ansor's in this context."""
        return False

    def may_have(self, target: LogTarget, dims: tuple[int, ...]) -> bool:
        """Whether it is worth asking for records of Ansor's for operands of these extents."""
        return False


class FallbackContext(DispatchContext):
    """The bottom of every thread: no records. Entered with `with`, it hides those around it."""

    hides_outer = True

    def find(self, target: LogTarget, workload_key: str) -> Record | None:
        return None

    def content_digest(self) -> str | None:
        return ""


class ApplyHistoryBest(DispatchContext):
    """Build kernels from the best records of auto_scheduler logs.

    Parameters
    ----------
    records : path, Record, (MeasureInput, MeasureResult) pair, or iterable of these
        None, also among them, adds nothing.
    n_lines : int, optional
        Read at most this many records in total.
    include_compatible : bool
        Let a record of smaller shapes serve a workload whose extents are multiples of them,
        when that workload has none.
    prefer : str
        "log": a record is always used. "fastest": the first build that finds a record measures
        the kernel with it and without the log, and the faster is used from then on; see
        `compiler.records.auto_scheduler.log_benchmark`.

    Raises
    ------
    RecordError
        A file that can't be read or has no record at all, or another value of `prefer`.
    """

    def __init__(
        self,
        records: Records,
        n_lines: int | None = None,
        include_compatible: bool = False,
        prefer: str = "log",
    ) -> None:
        self.prefer = checked_preference(prefer)
        self.include_compatible = include_compatible
        self.records = BestRecords()
        self._set_by_user: dict[tuple[str, str], Record] = {}
        self.load(records, n_lines)

    def load(self, records: Records, n_lines: int | None = None) -> None:
        """Add more records to those already here."""
        single = (str, bytes, os.PathLike, Record, AnsorRecord)
        if records is None or isinstance(records, single) or _is_pair(records):
            records = [records]
        if isinstance(records, io.IOBase) or not isinstance(records, Iterable):
            raise _not_records(records)
        left = math.inf if n_lines is None else n_lines
        item: Any
        for item in records:
            if item is None or left <= 0:
                continue
            if isinstance(item, bytes):
                item = os.fsdecode(item)
            elif _is_pair(item):
                item = item[0].measured(item[1])
            if isinstance(item, (str, os.PathLike)):
                left -= self.records.add_log(LogFile(item), None if left == math.inf else int(left))
            elif isinstance(item, (Record, AnsorRecord)):
                self.records.add(item)
                left -= 1
            else:
                raise _not_records(item)

    def update(self, target: Any, workload_key: str, state: Any) -> None:
        """Set the schedule of a workload by hand; it goes before every record.

        `state`: a `Record` or the state of one. Raises RecordError: it is anything else.
        """
        record = state.record if isinstance(state, State) else state
        if not isinstance(record, Record):
            raise RecordError(
                f"update takes a Record or its state, not a {type(record).__name__}; write the "
                "schedule to a log and load that"
            )
        described = log_target(target)
        for name in (f"model:{described.model}", *(f"key:{key}" for key in described.keys)):
            self._set_by_user[name, workload_key] = record

    def find(self, target: LogTarget, workload_key: str) -> Record | None:
        return next(self.find_all(target, workload_key), None)

    def find_all(self, target: LogTarget, workload_key: str) -> Iterator[Record]:
        for name in (f"model:{target.model}", *(f"key:{key}" for key in target.keys)):
            if (name, workload_key) in self._set_by_user:
                yield self._set_by_user[name, workload_key]
        yield from self.records.find(target, workload_key, self.include_compatible)

    def find_ansor(self, target: LogTarget, key: WorkloadKey) -> Iterator[AnsorRecord]:
        return self.records.find_ansor(target, key, self.include_compatible)

    def find_by_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> Iterator[AnsorRecord]:
        return self.records.of_shapes(target, dims)

    def log_counts(self, target: LogTarget) -> list[tuple[str, int, int]]:
        return self.records.counts.matching(target)

    @property
    def has_ansor(self) -> bool:
        return self.records.has_ansor

    def may_have(self, target: LogTarget, dims: tuple[int, ...]) -> bool:
        if self.include_compatible:
            return self.records.has_ansor
        return self.records.has_shapes(target, dims)

    def content_digest(self) -> str | None:
        if self.prefer != "log" or self._set_by_user:  # then a measurement or the user decides
            return None
        digest = self.records.content_digest()
        return None if digest is None else f"{digest} {self.include_compatible}"


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], MeasureInput)


def _not_records(item: Any) -> RecordError:
    return RecordError(
        f"records has a {type(item).__name__}; give paths of logs, Records, or pairs of "
        "MeasureInput and MeasureResult"
    )


DispatchContext.bottom = FallbackContext()
_EXTRACTING: ContextVar[bool] = ContextVar("auto_scheduler_extracting", default=False)


def records_for(
    contexts: Iterable[DispatchContext], target: Any, workload_key: str, func_name: str = ""
) -> Iterator[Record]:
    """Yield records for a kernel, innermost context first, and of each the best first."""
    described = log_target(target)
    for context in contexts:
        if not context.is_user_defined():
            yield from context.find_all(described, workload_key)
            continue
        record = _checked_record(context, context._query_inside(target, workload_key, func_name))
        if record is not None:
            yield record


def _checked_record(context: DispatchContext, answer: Any) -> Record | None:
    """The answer of a user-defined context."""
    record = answer.record if isinstance(answer, State) else answer
    if record is not None and not isinstance(record, Record):
        raise RecordError(
            f"{type(context).__name__}._query_inside returned a {type(answer).__name__}; return a "
            "Record, its state, or None"
        )
    return record


def extracting() -> AbstractContextManager[bool]:
    """Mark the calling thread as extracting tasks: no schedules and no records there."""
    return scoped_value(_EXTRACTING, True)


def is_extracting() -> bool:
    """Whether the calling thread is inside `extract_tasks`."""
    return _EXTRACTING.get()
