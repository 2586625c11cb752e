"""Candidates of the search: scheduled modules, sent to worker processes as TVM JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import RecordError
from ...lowering.codegen.device_placement import device_kind as device_kind
from ...measure.candidate import ArgInfo, InstantiationError, Lowered
from ...records.auto_scheduler.workload import ENTRY
from ...records.measure_pair import MeasuredTask, MeasureInput
from ...target.config import config_of_object

if TYPE_CHECKING:
    import tvm
    from tvm.target import Target


@dataclass(frozen=True)
class ScheduledModule:
    """A candidate of `compiler.measure`: a module whose function "main" is scheduled."""

    text: str  # the module as `tvm.ir.save_json` writes it
    target: dict[str, Any]  # the target's configuration
    device: str  # kind of device it runs on
    modules: Sequence[str] = ("compiler.auto_scheduler.search.candidate",)

    @staticmethod
    def of(mod: tvm.IRModule, target: Target) -> ScheduledModule:
        """The candidate that a module with one function is."""
        import tvm

        config = plain_config(target)
        return ScheduledModule(str(tvm.ir.save_json(mod)), config, device_kind(target))

    def lower(self) -> Lowered:
        """The module, with the blocks removed that only describe a weight's layout."""
        import tvm
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(tvm.ir.load_json(self.text))
        args = tuple(map(ArgInfo.of, mod[ENTRY].params))
        return Lowered(mod, tvm.target.Target(self.target), args)

    def reference(self) -> None:
        """None: schedule primitives keep what a function computes, or refuse."""
        return None


@dataclass(frozen=True)
class Built:
    """A candidate that only runs; if it is to be built, it says why it can't be."""

    device: str
    reason: str = "built before"  # why its schedule is not possible
    modules: Sequence[str] = ("compiler.auto_scheduler.search.candidate",)

    def lower(self) -> Lowered:
        """Raises InstantiationError with the reason."""
        raise InstantiationError(self.reason)

    def reference(self) -> None:
        """None: schedule primitives keep what a function computes, or refuse."""
        return None


def as_candidate(given: Any) -> Any:
    """Convert a `MeasureInput` to a candidate; RecordError if a record's lacks its whole task."""
    if not isinstance(given, MeasureInput):
        return given
    task = given.task
    if isinstance(task, MeasuredTask):
        raise RecordError(
            f"{task.workload_key}: an input from a log does not have its computation; "
            "auto_scheduler.recover_measure_input(inp) gives it its whole task"
        )
    try:
        schedule, _ = task.compute_dag.apply_steps_from_state(given.state)
    except RecordError as error:
        return Built(device_kind(task.target), str(error))
    return ScheduledModule.of(schedule.mod, task.target)


def plain_config(target: Target) -> dict[str, Any]:
    """The target's configuration, its host's too, without objects of TVM."""
    config = config_of_object(target)
    host = config.get("host")
    if host is not None and not isinstance(host, dict):
        config["host"] = config_of_object(host)
    return config
