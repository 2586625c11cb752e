"""Schedules of MetaSchedule's as states of records, and states as what its cost models take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from ...errors import RecordError
from ...records.auto_scheduler.record import Record
from ...records.auto_scheduler.workload import ENTRY, canonical, workload_key
from ...records.measure_pair import MeasureInput, MeasureResult, State
from .engine import error_number, logged_target, trace_of, tuning_context, with_num_cores

if TYPE_CHECKING:
    from ..task import SearchTask
    from .cost_model import CostModel


def state_of(task: SearchTask, schedule: Schedule) -> State:
    """A schedule of a task as the state of a record that was not measured."""
    record = Record(task.workload_key, logged_target(task.target), trace_of(schedule), ())
    return State(record.with_tir(canonical(task.func)))


def sketches(task: SearchTask) -> list[State]:
    """Sketches of a task from MetaSchedule's rules, each with the first sampled tiles."""
    found = tuning_context(task, ms.search_strategy.ReplayTrace(), 1).generate_design_space()
    return [state_of(task, schedule) for schedule in found]


def scoring_context(task: SearchTask) -> Any:
    """The task for MetaSchedule's cost models."""
    mod = tvm.IRModule({ENTRY: canonical(task.func)})
    return ms.TuneContext(mod=mod, target=with_num_cores(task.target))


def candidate_of(task: SearchTask, state: Any) -> Any:
    """A state for MetaSchedule's cost models; None if it can't be scheduled."""
    try:
        schedule, _ = task.compute_dag.apply_steps_from_state(state)
    except RecordError:
        return None
    args = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return ms.MeasureCandidate(schedule, args)


def runner_result(result: Any) -> Any:
    """A measurement for MetaSchedule's cost models."""
    if result.error_no:
        return ms.runner.RunnerResult(None, str(int(result.error_no)))
    return ms.runner.RunnerResult([float(seconds) for seconds in result.costs], None)


@derived_object
class CostModelOfStates(ms.cost_model.PyCostModel):
    """A script's own cost model, for MetaSchedule's search of some tasks."""

    def __init__(self, model: CostModel, tasks: Sequence[SearchTask]) -> None:
        super().__init__()
        self.model = model
        self.tasks = {task.workload_key: task for task in tasks}

    def _task(self, context: Any) -> SearchTask:
        return self.tasks[workload_key(context.mod[ENTRY])]

    def load(self, path: str) -> None:
        """Not asked for: a search begins with the model as it is."""

    def save(self, path: str) -> None:
        """Not asked for: the script keeps its model."""

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        task = self._task(context)
        inputs = [MeasureInput(task, state_of(task, each.sch)) for each in candidates]
        self.model.update(inputs, [_measured(each) for each in results])

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        task = self._task(context)
        scores = self.model.predict(task, [state_of(task, each.sch) for each in candidates])
        if len(scores) != len(candidates):
            raise RecordError(
                f"{type(self.model).__name__}.predict gave {len(scores)} scores for "
                f"{len(candidates)} states"
            )
        return np.array(scores, "float64")


def _measured(result: Any) -> MeasureResult:
    costs = tuple(float(seconds) for seconds in result.run_secs or ())
    return MeasureResult(costs, error_number(result.error_msg), str(result.error_msg or ""))
