"""`relay.build` and `relay.optimize`, implemented by the build driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from .. import target as targets
from ..errors import BuildError
from ..lowering import bind
from ..lowering.simplify import simplify
from ..pass_context import default_opt_level
from ..runtime.factory import FactoryModule
from .backend.options import Executor as Executor
from .backend.options import Runtime as Runtime
from .calling_convention import as_module, module_of
from .executor import create_executor as create_executor
from .function import bind_params_by_name as bind_params_by_name
from .lower_and_build import lower_and_build
from .transform.simplify import FastMath


def build(
    ir_mod: tvm.IRModule | relax.Function | None = None,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    *,
    mod: tvm.IRModule | relax.Function | None = None,
) -> FactoryModule:
    """Compile a module to a library, by default at `opt_level` 3.

    Parameters
    ----------
    ir_mod : tvm.IRModule or relax.Function
        A Relax module with a `main` of static shapes, as the frontends return it.
    target : str, dict, tvm.target.Target, optional
        Target to compile for; by default the target of the surrounding `with target:`.
        A dict from device kinds to targets must have one entry.
    target_host
        Target of the host code of a GPU target; this machine by default.
    executor, runtime
        Only compiled functions ("graph" or "aot" executor) on the C++ runtime are supported.
    workspace_memory_pools, constant_memory_pools
        microTVM options; must be None.
    params : dict of str to array, optional
        Values of parameters of `main`, bound by name; unknown names are ignored.
    mod_name : str
        Module name: `lib[mod_name](dev)` creates an executor.
    mod
        Name of `ir_mod` in TVM 0.7 and older.

    Returns
    -------
    FactoryModule
        The library. `lib.report` lists the origin of every kernel's schedule.

    Raises
    ------
    TargetError
        The target is invalid, or cannot be compiled for on this machine.
    BuildError
        The module or a parameter is invalid, or an option is not supported.
    """
    _check_option("executor", executor, ("graph", "aot"))
    _check_option("runtime", runtime, ("cpp",))
    for name, pools in (
        ("workspace_memory_pools", workspace_memory_pools),
        ("constant_memory_pools", constant_memory_pools),
    ):
        if pools is not None:
            raise BuildError(f"{name} belonged to microTVM, which is gone; pass None")
    mod = module_of(mod if ir_mod is None else ir_mod)
    names = [str(gvar.name_hint) for gvar in mod.get_global_vars()]
    if "main" not in names:
        raise BuildError(
            f"the module has no function main, only {', '.join(sorted(names)) or 'none'}; pass the "
            "function itself, or name it main"
        )
    parsed = targets.parse(only_target(target), target_host)
    return lower_and_build(mod, parsed, params or {}, mod_name)


def optimize(
    mod: tvm.IRModule | relax.Function, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Run the target-independent part of a build: bind parameters and simplify.

    Uses approximate functions if the PassContext has `required_pass=["FastMath"]`.

    Returns
    -------
    The module, still at operator level, and an empty dict of parameters, since all are bound.
    """
    if target is not None:
        targets.parse(only_target(target))
    bound, _ = bind.bind_params(as_module(_with_fast_math(mod)), params or {})
    with default_opt_level():
        return simplify(bound), {}


def _with_fast_math(mod: Any) -> Any:
    """Apply FastMath to the module if the PassContext requires it."""
    context = tvm.transform.PassContext.current()
    if "FastMath" not in [str(each) for each in context.required_pass]:
        return mod
    if isinstance(mod, relax.Function):
        mod = tvm.IRModule({"main": mod.without_attr("global_symbol")})
    return FastMath()(mod)


def only_target(target: Any) -> Any:
    """Unwrap a dict with one target: {"cpu": "llvm"} -> "llvm"; return anything else unchanged."""
    if isinstance(target, dict) and "kind" not in target:
        if len(target) != 1:
            raise BuildError(
                f"the target dict {sorted(map(str, target))} names {len(target)} devices; build "
                "for one and give subgraphs of other devices to a partitioner"
            )
        return next(iter(target.values()))
    return target


def _check_option(name: str, value: Any, accepted: tuple[str, ...]) -> None:
    if value is None:
        return
    given = str(getattr(value, "name", value))
    if given not in accepted:
        raise BuildError(f"{name} {given!r} is not supported; Baton has {', '.join(accepted)}")


class BuildModule:
    """`relay.build_module.BuildModule()`: the steps of a build as separate methods."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._library: FactoryModule | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values of parameters of `main` for `build` and `optimize`."""
        self._params = dict(params)

    def build(
        self,
        mod: tvm.IRModule | relax.Function,
        target: Any = None,
        target_host: Any = None,
        executor: Any = None,
        runtime: Any = None,
        workspace_memory_pools: Any = None,
        constant_memory_pools: Any = None,
        params: Mapping[str, Any] | None = None,
        mod_name: str | None = None,
    ) -> tuple[str, Any, dict[str, Any]]:
        """Compile a module as `build` does; return the graph JSON, the library and the weights."""
        self._library = build(
            mod,
            target,
            target_host,
            executor,
            runtime,
            workspace_memory_pools,
            constant_memory_pools,
            self._params if params is None else params,
            mod_name or "default",
        )
        return self.get_graph_json(), self.get_module(), self.get_params()

    def optimize(
        self,
        mod: tvm.IRModule | relax.Function,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[tvm.IRModule, dict[str, Any]]:
        """Optimize a module; see `relay.optimize`."""
        del target_host
        return optimize(mod, target, self._params if params is None else params)

    @property
    def library(self) -> FactoryModule:
        """Library of the last `build`. Raises BuildError: nothing has been built yet."""
        if self._library is None:
            raise BuildError("nothing is built yet; call build(mod, target) first")
        return self._library

    def get_graph_json(self) -> str:
        """Return the graph JSON; see `FactoryModule.get_graph_json`."""
        return self.library.get_graph_json()

    def get_module(self) -> Any:
        """Return the library; see `FactoryModule.get_lib`."""
        return self.library.get_lib()

    def get_params(self) -> dict[str, Any]:
        """Return the weights in kernel layout; before a build, the values given to `set_params`."""
        return dict(self._params) if self._library is None else self.library.get_params()

    def get_devices(self) -> list[Any]:
        """Return the devices; see `FactoryModule.get_devices`."""
        return self.library.get_devices()

    def get_irmodule(self) -> tvm.IRModule:
        """Return the module that was built."""
        return self.library.ir_mod
