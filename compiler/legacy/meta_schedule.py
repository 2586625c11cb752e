"""`tvm.meta_schedule` with its `relay_integration`, which went with Relay, and what 0.10 had.

TVM 0.9 and 0.10 gave a search its limits as a `TuneConfig`, and got the best schedule back.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir.utils import derived_object

from ..errors import InputError
from .patches import Patches


@dataclass(frozen=True)
class TuneConfig:
    """How much a search of TVM 0.10 tries; the search decides the rest itself."""

    max_trials_global: int = 0
    num_trials_per_iter: int = 64
    max_trials_per_task: int | None = None
    strategy: str = "evolutionary"
    task_scheduler: str = "gradient"
    logger_config: Any = None


def _searching(tune: Callable[..., Any]) -> Callable[..., Any]:
    """`tune_tir` as scripts of any release call it."""

    def tune_tir(mod: Any, target: Any, *args: Any, **options: Any) -> Any:
        """The records of a search; with a `TuneConfig`, the best schedule, or None without one."""
        config = options.pop("config", None)
        if args and isinstance(args[0], TuneConfig):
            config, args = args[0], args[1:]
        if config is None:
            options.pop("task_name", None)  # up to TVM 0.13; tasks have the names of functions
            return tune(mod, target, *args, **options)
        work_dir = options.pop("work_dir", None) or args[0]
        records = tune(mod, target, work_dir, **_limits(config), **_parts(**options))
        integration = importlib.import_module("tvm.s_tir.meta_schedule.tir_integration")
        return integration.compile_tir(records, mod, target)

    return tune_tir


def tune_te(tensors: Sequence[Any], target: Any, *args: Any, **options: Any) -> Any:
    """`tune_tir` of what computes the last of some tensors."""
    function = tvm.te.create_prim_func(list(tensors))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.s_tir.meta_schedule.tune_tir(module, target, *args, **options)


def tune_relay(
    mod: tvm.IRModule,
    target: Any,
    config: TuneConfig,
    work_dir: Any,
    *,
    backend: str = "graph",
    params: Any = None,
    **options: Any,
) -> Any:
    """Search for the kernels of a Relay module, and build it with the best; as in 0.9 and 0.10."""
    integration = importlib.import_module("tvm.meta_schedule.relay_integration")
    database = integration.tune_relay(
        *(mod, params, target, work_dir, config.max_trials_global),
        num_trials_per_iter=config.num_trials_per_iter,
        **{name: each for name, each in options.items() if each is not None},
    )
    return integration.compile_relay(database, mod, target, params, backend=backend)


def _limits(config: TuneConfig) -> dict[str, Any]:
    return {
        "max_trials_global": config.max_trials_global,
        "max_trials_per_task": config.max_trials_per_task,
        "num_trials_per_iter": config.num_trials_per_iter,
        "strategy": config.strategy.replace("_", "-"),
        "task_scheduler": config.task_scheduler.replace("_", "-"),
    }


def _parts(
    space: Any = None,
    sch_rules: Any = None,
    postprocs: Any = None,
    mutator_probs: Any = None,
    blocks: Sequence[str] | None = None,
    task_name: str = "main",
    num_threads: int | None = None,
    **parts: Any,
) -> dict[str, Any]:
    """The parts of a search under their names of today; rules, and a space, come from functions."""
    del task_name  # tasks have the names of functions
    generators = tvm.s_tir.meta_schedule.space_generator
    if blocks is not None:
        raise InputError("blocks: a search takes all blocks; leave those out in space's function")
    rules = {"sch_rules": sch_rules, "postprocs": postprocs, "mutator_probs": mutator_probs}
    rules = {name: _made(each) for name, each in rules.items() if each is not None}
    if rules and space is not None:
        raise InputError(f"{', '.join(rules)}: give them to the space that space makes")
    if rules:
        space = generators.PostOrderApply(**rules)
    elif not isinstance(space, generators.SpaceGenerator):
        space = _made(space)
    made = {name: each for name, each in parts.items() if each is not None}
    if space is not None:
        made["space"] = space
    if num_threads is not None:
        made["num_tuning_cores"] = num_threads
    return made


def _made(part: Any) -> Any:
    """What a function makes, or the part itself."""
    return part() if callable(part) else part


def _relay_integration(name: str) -> Any:
    if name != "relay_integration":
        raise AttributeError(f"module 'tvm.meta_schedule' has no attribute {name!r}")
    return importlib.import_module("tvm.meta_schedule.relay_integration")


def patch(patches: Patches) -> None:
    """Let it have that module, the class, and functions that take it."""
    module = sys.modules["tvm.s_tir.meta_schedule"]
    patches.set(module, "__getattr__", _relay_integration)
    for owner in (module, module.utils):
        patches.add(owner, "derived_object", derived_object)
    patches.set(module, "tune_tir", _searching(module.tune_tir))
    for owner in (module, module.tune):
        for name, each in {
            "TuneConfig": TuneConfig,
            "tune_te": tune_te,
            "tune_relay": tune_relay,
        }.items():
            patches.add(owner, name, each)
        patches.add(owner, "tune_tir", module.tune_tir)
