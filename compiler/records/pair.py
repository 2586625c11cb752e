"""Records as the pairs that scripts of TVM 0.7 to 0.19 unpack: what was measured, and its times.

inp, res = auto_scheduler.load_best_record("matmul.json", task.workload_key)
schedule, args = task.compute_dag.apply_steps_from_state(inp.state)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class State:
    """The schedule that a record holds; printed, its steps."""

    record: Any

    def __str__(self) -> str:
        steps = getattr(self.record, "trace", None) or getattr(self.record, "step_rows", [])
        return "\n".join(map(str, steps))


@dataclass(frozen=True)
class MeasuredTask:
    """Which workload a record is of, and the target, as the record's writer spelled it."""

    workload_key: str
    target: Any


@dataclass(frozen=True)
class MeasureInput:
    """What was measured."""

    record: Any

    @property
    def task(self) -> MeasuredTask:
        """Workload and target."""
        target = getattr(self.record, "target", None) or self.record.target_text
        return MeasuredTask(self.record.workload_key, target)

    @property
    def state(self) -> State:
        """The schedule."""
        return State(self.record)

    def measured(self, result: MeasureResult) -> Any:
        """The record of this schedule with these times."""
        times = {"costs": tuple(map(float, result.costs)), "timestamp": float(result.timestamp)}
        return replace(self.record, error=int(result.error_no), **times)


@dataclass(frozen=True)
class MeasureResult:
    """Times of a measurement.

    Attributes
    ----------
    costs : tuple of float
        Seconds per run.
    error_no : int
        0 without an error.
    all_cost : float
        Seconds of the whole measurement, where the log says so.
    timestamp : float
        Unix time.
    """

    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float


class Pair:
    """Base of records: iterated, one is its `MeasureInput` and its `MeasureResult`."""

    def __iter__(self) -> Iterator[Any]:
        record: Any = self
        yield MeasureInput(record)
        all_cost = getattr(record, "all_cost", 0.0)
        yield MeasureResult(record.costs, record.error, all_cost, record.timestamp)
