"""Tuning tasks: the unscheduled kernels of a module, deduplicated, with their weights."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import SBlock
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.target import Target
from tvm.tirx import PrimFunc

from .. import target as targets
from ..errors import RecordError
from ..target.config import config_of_object
from .dispatcher import extracting
from .workload import workload_key

logger = logging.getLogger("baton.auto_scheduler")

_REDUCTION = 2  # tirx.IterVar.CommReduce


@dataclass(frozen=True)
class HardwareParams:
    """What a search may assume of the device; a value of None is left to the target.

    Attributes are those of TVM 0.18, in its order; sizes are in bytes.
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None

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
        return with_attributes(target, given)


@dataclass(frozen=True)
class SearchTask:
    """One kernel to tune.

    Attributes
    ----------
    func : PrimFunc
        The unscheduled compute.
    workload_key : str
        Under which records of it are kept.
    target : Target
    desc : str
        Operators and operand shapes: "conv2d_add_relu (1x64x56x56, 64x64x3x3) -> 1x64x56x56".
    flop_ct : float
        Floating-point operations of one call; 0 when TVM can't tell.
    weight : int
        How often the module calls it.
    """

    func: PrimFunc
    workload_key: str
    target: Target
    desc: str
    flop_ct: float
    weight: int = 1

    def __str__(self) -> str:
        return f"{self.desc} on {targets.to_cli(self.target)}"


def with_attributes(target: Target, attributes: Mapping[str, Any]) -> Target:
    """The target with some attributes replaced."""
    if not attributes:
        return target
    return targets.parse({**config_of_object(target), **attributes})


class ExtractedKernel(Protocol):
    """What the build driver tells of a kernel call."""

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
    from ..lowering.extract import kernels

    build_target = targets.parse(target, target_host)
    others = [targets.parse(other, target_host) for other in other_targets or ()]
    whole = tvm.IRModule({"main": mod}) if isinstance(mod, relax.Function) else mod
    outer = tvm.transform.PassContext.current()
    passes = tvm.transform.PassContext(
        opt_level=opt_level,
        required_pass=list(outer.required_pass),
        disabled_pass=list(outer.disabled_pass),
        config=dict(outer.config),
    )
    with extracting(), passes:
        found = kernels(whole, params, build_target)
    tasks = tasks_of_kernels(found, hardware_params, include_simple_tasks, others)
    if dump_workload_to_dag_log is not None:
        texts = {task.workload_key: task.func.script() for task in tasks}
        Path(dump_workload_to_dag_log).write_text(json.dumps(texts, indent=1), encoding="utf-8")
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
        if hardware_params is not None:
            target = hardware_params.applied_to(target)
        try:
            key = workload_key(kernel.func)
        except RecordError as error:  # a dynamic shape has no task, as in TVM 0.18
            logger.info("%s is no task: %s", " ".join(kernel.operators), error)
            continue
        held = tasks.get((key, str(target)))
        if held is None:
            held = SearchTask(
                kernel.func, key, target, _describe(kernel), _flops(kernel.func), weight=0
            )
        tasks[key, str(target)] = replace(held, weight=held.weight + 1)
    return list(tasks.values())


def has_reduction(func: PrimFunc) -> bool:
    """Whether any block of the function reduces."""
    found = False

    def look(block: SBlock) -> None:
        nonlocal found
        found = found or any(int(var.iter_type) == _REDUCTION for var in block.iter_vars)

    tvm_ffi.structural_walk(func.body, (SBlock, look))
    return found


def _describe(kernel: ExtractedKernel) -> str:
    shapes = ["x".join(str(dim) for dim in param.shape) or "scalar" for param in kernel.func.params]
    return f"{'_'.join(kernel.operators)} ({', '.join(shapes[:-1])}) -> {shapes[-1]}"


def _flops(func: PrimFunc) -> float:
    try:
        return float(estimate_tir_flops(tvm.IRModule({"main": func})))
    except Exception:  # the analysis gives up on data-dependent loops in several ways
        return 0.0
