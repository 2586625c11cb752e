"""Computation of a task, and its schedules from records."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import Any

import tvm
from tvm.tirx import PrimFunc

from ..errors import RecordError
from ..primfuncs.query import count_flops
from ..records.auto_scheduler.workload import ENTRY, canonical, workload_key
from ..records.measure_pair import State
from .loop_state import State as LoopState
from .workload_registry import computation_of


class LayoutRewriteOption:
    """Ansor's weight-layout options; no effect, since layouts follow from the schedule."""

    NO_REWRITE, INSERT_TRANSFORM_STAGE, REWRITE_FOR_PRE_TRANSFORMED = range(3)

    @staticmethod
    def get_target_default(target: Any, in_relay_integration: bool = False) -> int:
        """Default option for a target."""
        if str(tvm.target.Target(target).kind.name) != "llvm":
            return LayoutRewriteOption.NO_REWRITE
        if in_relay_integration:
            return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
        return LayoutRewriteOption.INSERT_TRANSFORM_STAGE


class ComputeDAG:
    """An unscheduled computation: a function, its tensors (inputs first), or a registered key.

    `target` is that of the schedules.
    """

    def __init__(self, compute: Any, target: Any = None) -> None:
        if isinstance(compute, str):
            compute = computation_of(compute)
        is_function = isinstance(compute, PrimFunc)
        self.tensors: list[Any] = [] if is_function else list(compute)
        self.func = compute if is_function else tvm.te.create_prim_func(self.tensors)
        self.target = target

    def workload_key(self) -> str:
        """Key of its records if it is not a registered workload."""
        return workload_key(self.func)

    @cached_property
    def flop_ct(self) -> float | None:
        """Floating-point operations of one call; None if unknown."""
        count = count_flops(self.func)
        return None if count is None else float(count)

    @property
    def init_state(self) -> LoopState:
        """Unscheduled loops, to be transformed by hand."""
        return LoopState(self.func, self.tensors)

    def get_init_state(self) -> LoopState:
        """`init_state`."""
        return self.init_state

    def infer_bound_from_state(self, state: State | LoopState) -> LoopState:
        """Infer loop extents that depend on compute_at locations."""
        return self.loop_state(state).bounded()

    def loop_state(self, state: State | LoopState) -> LoopState:
        """The loops of a state by Ansor's steps.

        Raises RecordError: it is of another computation, or a trace of TensorIR's primitives.
        """
        if isinstance(state, LoopState):
            if not state.is_of(self.func):
                raise RecordError("this state belongs to another ComputeDAG")
            return state
        steps = getattr(state.record, "steps", None)
        if steps is None:
            raise RecordError(
                f"{state.record.source}: this record's schedule is a trace, which has no loops by "
                "Ansor's steps; print_python_code_from_state shows it"
            )
        return LoopState.of_steps(self.func, self.tensors, steps)

    def __str__(self) -> str:
        return str(self.func.script())

    def apply_steps_from_state(
        self, state: State | LoopState, layout_rewrite: Any = None
    ) -> tuple[Any, list[Any]]:
        """The schedule of a record's state.

        Parameters
        ----------
        state : State or LoopState
            Of a record of this computation, `inp.state`, or `init_state`.
        layout_rewrite
            Accepted; weights' layouts follow from the schedule.

        Returns
        -------
        tvm.s_tir.Schedule, list of the function's parameters

        Raises
        ------
        RecordError
            The record is of another computation.
        """
        del layout_rewrite
        if isinstance(state, LoopState):
            schedule = self.loop_state(state).schedule()
        else:
            schedule = self._schedule(state.record)
        return schedule, list(schedule.mod[ENTRY].params)

    def print_python_code_from_state(self, state: State | LoopState) -> str:
        """The schedule of a state as Python."""
        from ..records.auto_scheduler.record import Record

        if isinstance(state, LoopState):
            return str(self.loop_state(state).schedule().trace)
        record = state.record
        if not isinstance(record, Record):
            return str(self._schedule(record).trace)
        mod = tvm.IRModule({ENTRY: canonical(self.func)})
        return str(record.schedule_of(mod, self.target or nullcontext()).trace)

    def _schedule(self, record: Any) -> Any:
        """Schedule the function by a Baton or Ansor record; unscheduled for None."""
        from ..records.ansor.dag import read_dag
        from ..records.ansor.replay import replay as replay_ansor
        from ..records.auto_scheduler.record import Record, replay

        if record is None:
            return tvm.s_tir.Schedule(tvm.IRModule({ENTRY: canonical(self.func)}))
        if isinstance(record, Record):
            return tvm.s_tir.Schedule(replay(record, self.func, self.target))
        try:
            return replay_ansor(read_dag(self.func), record.steps, same_extents=False).schedule
        except RecordError as error:
            name = record.source.partition(":")[2]
            raise RecordError(f"{name}: can't be replayed: {error}") from error
