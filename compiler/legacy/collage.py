"""Collage of TVM 0.10 to 0.18, `relay.transform.CollagePartition`, by measured engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tvm

from ..errors import OutOfScopeError
from ..partition import Fastest, partition
from ..relay import transform
from ..target.config import to_cli
from .patches import Patches


class CompilationConfig(NamedTuple):
    """Targets of a build."""

    primitive_targets: tuple[Any, ...]
    host_target: Any = None


def make_compilation_config(ctxt: Any, target: Any, target_host: Any = None) -> CompilationConfig:
    """Collect targets: one, a list of them, or a dict by device. `ctxt` has no effect."""
    del ctxt
    if isinstance(target, Mapping):
        target = list(target.values())
    return CompilationConfig(tuple(target) if isinstance(target, list) else (target,), target_host)


def CollagePartition(config: CompilationConfig, cost_estimator: Any = None) -> Any:
    """Pass: give each part to the back end, or to the build, that is measured to run it fastest.

    Targets of `config` are CPUs, as objects or text, and names of back ends. Raises
    OutOfScopeError: a cost estimator is given. The pass raises what `partition` does.
    """
    if cost_estimator is not None:
        raise OutOfScopeError("CollagePartition: costs are measured; leave out cost_estimator")
    texts = [each if isinstance(each, str) else to_cli(each) for each in config.primitive_targets]
    cpus = [each for each in texts if each.split()[0] in ("llvm", "c")]
    engines = [each.split()[0] for each in texts if each not in cpus]
    how = Fastest(cpus[0] if cpus else "llvm")

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return partition(mod, engines, placement=how)

    return tvm.transform.module_pass(run, opt_level=0, name="CollagePartition")


def patch(patches: Patches) -> None:
    """Give `relay.transform` and `tvm.target` the names."""
    patches.set(transform, "CollagePartition", CollagePartition)
    patches.add(tvm.target, "make_compilation_config", make_compilation_config)
