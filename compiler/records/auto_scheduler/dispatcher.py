"""Dispatch contexts of auto_scheduler: which records a build in this thread is made from.

    with auto_scheduler.ApplyHistoryBest("mine.json"):
        lib = relay.build(mod, target, params=params)

The build needs no other switch: while such a context is active, kernels are built from records,
and those without one from their TOPI schedules. Contexts are `contextvars`: a context entered in
one thread is not seen by another, and an exception leaves none behind.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...support.scoped_context import NestedContext
from ..ansor.record import AnsorRecord, WorkloadKey
from ..autotvm.dispatcher import checked_preference
from ..log_target import LogTarget, log_target
from .history import BestRecords
from .log_index import LogFile
from .record import AnyRecord, Record

if TYPE_CHECKING:
    from tvm.target import Target
    from tvm.tirx import PrimFunc

Records = str | os.PathLike | Iterable[str | os.PathLike | AnyRecord | None]


class DispatchContext(NestedContext, kind="auto_scheduler"):
    """Base of the contexts: which records each has, and the way to those of the outer ones."""

    prefer = "log"

    def query(self, target: Any, workload_key: str) -> Record | None:
        """Record of a `workload.workload_key` from this context, else from those around it."""
        return query_contexts(self.with_outer(), target, workload_key)

    def find(self, target: LogTarget, workload_key: str) -> Record | None:
        """Record from this context alone."""
        raise NotImplementedError

    def find_ansor(self, target: LogTarget, key: WorkloadKey) -> Iterator[AnsorRecord]:
        """This context's records of a task of Ansor's, the best first."""
        return iter(())

    def find_by_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> Iterator[AnsorRecord]:
        """This context's records of Ansor's for operands of these extents, the best first."""
        return iter(())

    def sample(self, target: Target, func: PrimFunc) -> Record | None:
        """A schedule that this context makes up for an unscheduled kernel without a record."""
        return None

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
    records : path, or iterable of paths and Records (None among them is passed over)
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
        self.load(records, n_lines)

    def load(self, records: Records, n_lines: int | None = None) -> None:
        """Add more records to those already here."""
        if isinstance(records, (str, os.PathLike)):
            records = [records]
        left = math.inf if n_lines is None else n_lines
        for item in records:
            if item is None or left <= 0:
                continue
            if isinstance(item, (str, os.PathLike)):
                left -= self._load_log(item, None if left == math.inf else int(left))
            elif isinstance(item, (Record, AnsorRecord)):
                self.records.add(item)
                left -= 1
            else:
                raise RecordError(
                    f"records has a {type(item).__name__}; give paths of logs, or Records"
                )

    def _load_log(self, path: str | os.PathLike, n_lines: int | None) -> int:
        return self.records.add_log(LogFile(path), n_lines)

    def find(self, target: LogTarget, workload_key: str) -> Record | None:
        return self.records.find(target, workload_key, self.include_compatible)

    def find_ansor(self, target: LogTarget, key: WorkloadKey) -> Iterator[AnsorRecord]:
        return self.records.find_ansor(target, key, self.include_compatible)

    def find_by_shapes(self, target: LogTarget, dims: tuple[int, ...]) -> Iterator[AnsorRecord]:
        return self.records.of_shapes(target, dims)

    @property
    def has_ansor(self) -> bool:
        return self.records.has_ansor

    def may_have(self, target: LogTarget, dims: tuple[int, ...]) -> bool:
        if self.include_compatible:
            return self.records.has_ansor
        return self.records.has_shapes(target, dims)

    def content_digest(self) -> str | None:
        if self.prefer != "log":  # then a measurement decides
            return None
        digest = self.records.content_digest()
        return None if digest is None else f"{digest} {self.include_compatible}"


DispatchContext.bottom = FallbackContext()
_EXTRACTING: ContextVar[bool] = ContextVar("auto_scheduler_extracting", default=False)


def active_contexts() -> tuple[DispatchContext, ...]:
    """The calling thread's contexts, innermost first; the last one is a FallbackContext."""
    return DispatchContext.active()


def query_contexts(
    contexts: Iterable[DispatchContext], target: Any, workload_key: str
) -> Record | None:
    """Ask contexts in turn, innermost first; None when none has a record."""
    described = log_target(target)
    for context in contexts:
        record = context.find(described, workload_key)
        if record is not None:
            return record
    return None


@contextmanager
def extracting() -> Iterator[None]:
    """Mark the calling thread as extracting tasks: no schedules and no records there."""
    token = _EXTRACTING.set(True)
    try:
        yield
    finally:
        _EXTRACTING.reset(token)


def is_extracting() -> bool:
    """Whether the calling thread is inside `extract_tasks`."""
    return _EXTRACTING.get()
