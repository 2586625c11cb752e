"""Tuning tasks: the unscheduled kernels of a module, deduplicated, with their weights."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, astuple, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import tvm
from tvm import relax
from tvm.target import Target
from tvm.tirx import PrimFunc

from .. import target as targets
from ..errors import RecordError
from ..measure.candidate import MeasureErrorNo
from ..primfuncs.query import has_reduction
from ..records.auto_scheduler.dispatcher import extracting
from ..records.auto_scheduler.workload import workload_key as key_of
from ..records.measure_pair import State
from ..support.atomic_file import write_file
from .compute_dag import ComputeDAG, LayoutRewriteOption
from .task_inputs import as_array, operand_values, placed, register_task_input_buffer
from .workload_registry import computation_of, make_workload_key, register_workload_tensors

if TYPE_CHECKING:
    from ..records.auto_scheduler.record import AnyRecord
    from .search.options import TuningOptions

logger = logging.getLogger("baton.auto_scheduler")

# A simplified module, the name of a function in it, and bindings of that.
Origin = tuple[tvm.IRModule, str, tuple[str, ...]]


@dataclass(frozen=True)
class HardwareParams:
    """Device limits that a search may assume; None means the value of the target.

    Attributes are those of TVM 0.18, in its order; sizes are in bytes. Targets are accepted: that
    of a task decides.
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: InitVar[Any] = None
    target_host: InitVar[Any] = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """As a record has them; 0 for what is left to the target."""
        return tuple(number or 0 for number in astuple(self))

    def applied_to(self, target: Target) -> Target:
        """The target with those parameters that TVM's targets have an attribute for."""
        attributes = {
            "num-cores": self.num_cores,
            "max_shared_memory_per_block": self.max_shared_memory_per_block,
            "max_threads_per_block": self.max_threads_per_block,
            "thread_warp_size": self.warp_size,
        }
        known = target.kind.options
        given = {k: v for k, v in attributes.items() if v is not None and k in known}
        return targets.with_attributes(target, given)


class SearchTask:
    """One kernel to tune.

    Parameters
    ----------
    func : PrimFunc, callable or str
        The unscheduled compute; or a registered workload, or its name.
    args : sequence, optional
        Of the registered workload.
    compute_dag : ComputeDAG or sequence of te.Tensor, optional
        Inputs, then outputs, instead of `func`.
    workload_key : str, optional
        `make_workload_key(func, args)`, instead of both; or that of a task that `extract_tasks`
        found in this process.
    target, target_host : str, dict or Target
    hardware_params : HardwareParams, optional
        Overrides what the target says.
    task_inputs : mapping of str to array, optional
        Input values to measure with instead of random ones, such as sparse-matrix indices:
        each is bound to the operand of its name, or else to the first free one of its type.
    task_inputs_overwrite, task_inputs_save_to_file : bool
        As of `register_task_input_buffer`, which keeps them.
    layout_rewrite_option : int, optional
        Kept in records; weights' layouts follow from the schedules.
    desc : str
        What to call it; operators and operand shapes of a task that `extract_tasks` found.

    Attributes
    ----------
    func : PrimFunc
    workload_key : str
        Under which records of it are kept.
    registered_key : str or None
        Name and arguments of the registered workload, under which Ansor kept records.
    target : Target
    flop_ct : float or None
        Floating-point operations of one call; None where TVM can't tell.
    weight : int
        How often the module calls it.
    origin : tuple or None
        The module, the function and the bindings that it was extracted from.

    Raises
    ------
    RecordError
        There is no such workload, a dimension is not a constant, or no operand is left for one of
        the inputs.
    """

    def __init__(
        self,
        func: Any = None,
        args: Sequence[Any] | None = None,
        compute_dag: ComputeDAG | Sequence[Any] | None = None,
        workload_key: str | None = None,
        target: targets.TargetLike | None = None,
        target_host: targets.TargetLike | None = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: Any = None,
        task_inputs: Mapping[str, Any] | None = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
        *,
        weight: int = 1,
        origin: Origin | None = None,
    ) -> None:
        self.registered_key: str | None = None
        self._tensors: list[Any] = []
        if isinstance(func, PrimFunc):
            self.func = func
        else:
            if compute_dag is None:
                self.registered_key = _registered(func, args, workload_key)
                compute_dag = computation_of(self.registered_key)
            if not isinstance(compute_dag, ComputeDAG):
                compute_dag = ComputeDAG(compute_dag)
            self.func = compute_dag.func
            self._tensors = compute_dag.tensors
        self.workload_key = key_of(self.func)
        if self.registered_key == self.workload_key:  # of an extracted task
            self.registered_key = None
        self.target = targets.parse(target, target_host)
        if hardware_params is not None:
            self.target = hardware_params.applied_to(self.target)
        self.hardware_params = hardware_params or HardwareParams()
        if layout_rewrite_option is None:
            layout_rewrite_option = LayoutRewriteOption.get_target_default(self.target)
        self.layout_rewrite_option = int(layout_rewrite_option)
        self.desc = desc
        self.weight = weight
        self.origin = origin
        key = self.registered_key or self.workload_key
        given = {name: as_array(value) for name, value in (task_inputs or {}).items()}
        for name, array in given.items():
            register_task_input_buffer(
                key, name, array, task_inputs_overwrite, task_inputs_save_to_file
            )
        self.task_input_names = list(given)
        self.inputs = placed(self.func, given)

    @property
    def operand_values(self) -> list[Any] | None:
        """Input values to measure with; None if all are random."""
        return operand_values(self.func, self.inputs)

    @property
    def flop_ct(self) -> float | None:
        """Floating-point operations of one call; None where TVM can't tell."""
        return self.compute_dag.flop_ct

    def gflops(self, seconds: float) -> str:
        """10^9 operations per second of a call that takes so long, for tables."""
        if not math.isfinite(seconds):
            return "-"
        return "unknown" if self.flop_ct is None else f"{self.flop_ct / seconds / 1e9:.2f}"

    @cached_property
    def compute_dag(self) -> ComputeDAG:
        """The compute, which scripts print and apply records' states to."""
        return ComputeDAG(self._tensors or self.func, self.target)

    def __str__(self) -> str:
        return f"{self.desc or self.workload_key} on {targets.to_cli(self.target)}"

    def tune(
        self,
        tuning_options: TuningOptions,
        search_policy: Any = None,
        adaptive_training: bool = False,
    ) -> None:
        """Search for schedules; results go to the options' callbacks.

        Parameters
        ----------
        search_policy : SearchPolicy, optional
            A `SketchPolicy` with a cost model, and possibly a log to go on from; or a script's own.
        adaptive_training : bool
            Accepted; `XGBModel` has it.
        """
        from .search.policy import SketchPolicy

        (search_policy or SketchPolicy(self)).search(tuning_options)

    def apply_best(
        self,
        log_file: str | os.PathLike,
        include_compatible: bool = False,
        layout_rewrite_option: Any = None,
    ) -> tuple[Any, list[Any]]:
        """The best schedule in a log.

        Returns
        -------
        tvm.s_tir.Schedule, list of the kernel's parameters

        Raises
        ------
        RecordError
            The log has no schedule of this task.
        """
        record = self._best(log_file, include_compatible)
        return self.compute_dag.apply_steps_from_state(State(record))

    def print_best(self, log_file: str | os.PathLike, print_mode: str = "schedule") -> str:
        """The best schedule in a log as text.

        Parameters
        ----------
        print_mode : str
            "schedule": the schedule primitives, as Python. "cuda": the CUDA source.
        """
        if print_mode not in ("schedule", "cuda"):
            raise RecordError(f"print_mode {print_mode!r} is neither 'schedule' nor 'cuda'")
        if print_mode == "cuda":
            schedule, _ = self.apply_best(log_file)
            with self.target:
                built = tvm.tirx.build(schedule.mod, self.target)
            return str(built.mod.imports[0].inspect_source())
        return self.compute_dag.print_python_code_from_state(State(self._best(log_file, False)))

    def _best(self, log_file: str | os.PathLike, include_compatible: bool) -> AnyRecord:
        """Baton's record or Ansor's, whichever is faster."""
        from ..records.auto_scheduler.record import best_record

        keys = [self.workload_key]
        if self.registered_key is not None:
            keys.append(self.registered_key)
        found = [
            record
            for key in keys
            if (record := best_record(
                log_file, key, self.target, include_compatible, tuned=True
            )) is not None
        ]  # fmt: skip
        if not found:
            raise RecordError(
                f"{os.fspath(log_file)} has no schedule of {self}{_failures(log_file, keys)}"
            )
        return min(found, key=lambda record: record.cost)


def _failures(log_file: str | os.PathLike, keys: Sequence[str]) -> str:
    """How many trials of a workload failed according to a log, and how the first one did."""
    from ..records.auto_scheduler.record import scan

    tried = [each for each in scan(log_file) if getattr(each, "workload_key", None) in keys]
    errors = [error for each in tried if (error := getattr(each, "error", 0))]
    if not errors:
        return ""
    first = MeasureErrorNo(errors[0])
    help_ = {
        MeasureErrorNo.RUN_TIMEOUT: "; give the runner a longer timeout= or a smaller number=",
        MeasureErrorNo.BUILD_TIMEOUT: "; give the builder a longer timeout=",
    }
    return f": {len(errors)} trials failed, the first with {first.name}{help_.get(first, '')}"


def _registered(func: Any, args: Sequence[Any] | None, key: str | None) -> str:
    """Key of a registered workload."""
    if key is not None:
        return key
    if func is None:
        raise RecordError("a task needs a function with its arguments, or a workload key")
    return make_workload_key(func, args or ())


class ExtractedKernel(Protocol):
    """A kernel call as reported by the build driver."""

    @property
    def func(self) -> PrimFunc: ...

    @property
    def operators(self) -> tuple[str, ...]: ...


def extract_tasks(
    mod: tvm.IRModule | relax.Function,
    params: Mapping[str, Any] | None,
    target: targets.TargetLike,
    target_host: targets.TargetLike | None = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | os.PathLike | None = None,
    opt_level: int = 3,
    other_targets: Sequence[targets.TargetLike] | None = None,
) -> tuple[list[SearchTask], list[int]]:
    """Find the kernels that a build of the module would make, before any is scheduled.

    Parameters
    ----------
    mod : IRModule or relax.Function
        A module, or its "main" alone.
    params : dict of str to array, optional
        Values of parameters of main.
    target, target_host : str, dict or Target
    hardware_params : HardwareParams, optional
        Overrides what the target says.
    include_simple_tasks : bool
        Also kernels without a reduction.
    dump_workload_to_dag_log : path, optional
        Write {workload key: TIR text} there as JSON.
    opt_level : int
        Of the graph passes; passes that the current PassContext disables stay disabled.
    other_targets : sequence of targets, optional
        Full targets for accepted subgraphs whose own target names only a kind.

    Returns
    -------
    tasks : list of SearchTask
        In the order of their first call.
    weights : list of int
        How often the module calls each.

    Raises
    ------
    TargetError
        A target that is not understood.
    """
    from ..lowering.selection.extract import kernels
    from ..relay.build_module import as_module

    build_target = targets.parse(target, target_host)
    others = [targets.parse(other, target_host) for other in other_targets or ()]
    outer = tvm.transform.PassContext.current()
    passes = tvm.transform.PassContext(
        opt_level=opt_level,
        required_pass=list(outer.required_pass),
        disabled_pass=list(outer.disabled_pass),
        config=dict(outer.config),
    )
    with extracting(), passes:
        found = kernels(as_module(mod), params, build_target)
    tasks = tasks_of_kernels(found, hardware_params, include_simple_tasks, others)
    if dump_workload_to_dag_log is not None:
        texts = {task.workload_key: task.func.script() for task in tasks}
        write_file(dump_workload_to_dag_log, json.dumps(texts, indent=1))
    return tasks, [task.weight for task in tasks]


def tasks_of_kernels(
    kernels: Iterable[tuple[Target, ExtractedKernel]],
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    other_targets: Sequence[Target] = (),
) -> list[SearchTask]:
    """One task for each distinct kernel and target; its weight is the number of calls."""
    complete = {str(other.kind.name): other for other in other_targets}
    tasks: dict[tuple[str, str], SearchTask] = {}
    for own_target, kernel in kernels:
        if not include_simple_tasks and not has_reduction(kernel.func):
            continue
        target = own_target
        if set(own_target.attrs) <= set(Target(str(own_target.kind.name)).attrs):
            target = complete.get(str(own_target.kind.name), own_target)
        try:
            key = key_of(kernel.func)
        except RecordError as error:  # a dynamic shape has no task, as in TVM 0.18
            logger.info("%s is not a task: %s", " ".join(kernel.operators), error)
            continue
        held = tasks.get((key, str(target)))
        if held is None:
            register_workload_tensors(key, kernel.func)
            held = tasks[key, str(target)] = SearchTask(
                kernel.func, target=target, desc=_describe(kernel), weight=0,
                hardware_params=hardware_params, origin=getattr(kernel, "origin", None),
            )  # fmt: skip
        held.weight += 1
    return list(tasks.values())


def _describe(kernel: ExtractedKernel) -> str:
    shapes = [
        "x".join(str(int(dim)) for dim in param.shape) or "scalar" for param in kernel.func.params
    ]
    return f"{'_'.join(kernel.operators)} ({', '.join(shapes[:-1])}) -> {shapes[-1]}"
