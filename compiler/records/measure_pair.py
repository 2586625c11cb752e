"""MeasureInput and MeasureResult of auto_scheduler records, as TVM 0.7 to 0.19 define them.

inp, res = auto_scheduler.load_best_record("matmul.json", task.workload_key)
schedule, args = task.compute_dag.apply_steps_from_state(inp.state)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from . import measure_result


@dataclass(frozen=True)
class State:
    """The schedule that a record holds; printed, its steps."""

    record: Any

    def record_of(self, task: Any) -> Any:
        """The record, whose times are those of an earlier measurement."""
        del task
        return self.record

    def __str__(self) -> str:
        steps = getattr(self.record, "trace", None) or getattr(self.record, "step_rows", [])
        return "\n".join(map(str, steps))


@dataclass(frozen=True)
class MeasuredTask:
    """Workload and target of a record."""

    workload_key: str
    spelled: Any  # the target as the record's writer spelled it
    host: str = ""  # host target; empty for the host of `spelled`
    layout_rewrite_option: int = 0
    task_input_names: tuple[str, ...] = ()  # inputs with user-given values

    @staticmethod
    def of(record: Any) -> MeasuredTask:
        """Task of a Baton or Ansor record."""
        key = record.workload_key
        if hasattr(record, "target"):
            return MeasuredTask(key, record.target)
        return MeasuredTask(
            key, record.target_text, record.host_text, record.layout_option, record.input_names
        )

    @cached_property
    def target(self) -> Any:
        """As a `tvm.target.Target`; TargetError if today's TVM lacks the target of an old log."""
        from ..target import parse

        return parse(self.spelled, self.host or None)


@dataclass(frozen=True)
class MeasureInput:
    """Input of a measurement: a task and its schedule.

    Attributes
    ----------
    task : MeasuredTask or SearchTask
    state : State or loop_state.State
        From a record, or written by hand.
    """

    task: Any
    state: Any

    @property
    def record(self) -> Any:
        """The record of the schedule, before it is measured."""
        return self.state.record_of(self.task)

    def measured(self, result: Any) -> Any:
        """The record of this schedule with these times."""
        record = self.record
        times = {"costs": tuple(map(float, result.costs)), "timestamp": float(result.timestamp)}
        if hasattr(record, "all_cost"):
            times["all_cost"] = float(result.all_cost)
        return replace(record, error=int(result.error_no), **times)


class Seconds(float):
    """A time in seconds with TVM's attribute `value`."""

    @property
    def value(self) -> float:
        """The number."""
        return float(self)


class MeasureResult(measure_result.MeasureResult):
    """A measurement result with auto_scheduler's argument order, and costs with `value`."""

    def __init__(
        self,
        costs: Sequence[float],
        error_no: int,
        error_msg: str = "",
        all_cost: float = 0.0,
        timestamp: float = 0.0,
    ) -> None:
        seconds = tuple(map(Seconds, costs))
        super().__init__(seconds, int(error_no), float(all_cost), float(timestamp), error_msg)


class Pair:
    """Base of records: iteration yields the `MeasureInput` and the `MeasureResult`."""

    def __iter__(self) -> Iterator[Any]:
        record: Any = self
        yield MeasureInput(MeasuredTask.of(record), State(record))
        all_cost = getattr(record, "all_cost", 0.0)
        yield MeasureResult(record.costs, record.error, "", all_cost, record.timestamp)
