"""`relay.create_executor`: functions of a module as Python functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from .. import target as targets
from ..errors import BuildError
from ..lowering import bind
from ..pass_context import default_opt_level
from ..records.auto_scheduler import dispatcher as auto_scheduler
from ..records.autotvm import dispatcher as autotvm
from .calling_convention import as_main
from .compiled_function import Compiled, CompiledFunction
from .expr import as_expr
from .function import OpenFunction
from .nested_expressions import handle
from .variables import free_vars

KINDS = ("graph", "vm", "debug", "aot")
_MOST_KEPT = 32


def create_executor(
    kind: str = "debug",
    mod: tvm.IRModule | None = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
    *,
    ctx: Any = None,
) -> Executor:
    """Create an executor, which evaluates functions of a module.

    Functions are compiled as by `relay.build`.

    Parameters
    ----------
    kind : str
        "graph", "vm", "debug" or "aot"; all use the same kernels. The executors "graph" and "aot"
        return results on the CPU.
    mod : tvm.IRModule or relax.Function, optional
        Module to evaluate; if omitted, pass functions to `evaluate`.
    device, target
        Device and compilation target; the target's default device if `device` is omitted.
    params : dict of str to array, optional
        Values of parameters of `main`, bound before compilation.
    ctx
        Name of `device` before TVM 0.8.
    """
    if kind not in KINDS:
        raise BuildError(f"there is no executor {kind!r}; there are {', '.join(KINDS)}")
    if ctx is not None and device is not None:
        raise BuildError("ctx is an old name of device; give one of them")
    if mod is not None and not isinstance(mod, tvm.IRModule):
        mod = as_main(mod)
    return Executor(kind, mod, ctx if device is None else device, target, params)


class Executor:
    """Evaluates functions of a module; see `create_executor`."""

    def __init__(
        self, kind: str, mod: tvm.IRModule | None, device: Any, target: Any, params: Any
    ) -> None:
        self.kind = kind
        self.mod = mod
        self.target = targets.parse(target or "llvm")
        own_device = tvm.device(self.target.get_target_device_type(), 0)
        self.device = own_device if device is None else device
        self.params = dict(params or {})
        self._known: dict[Any, tuple[Any, Compiled]] = {}

    def evaluate(self, expr: Any = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """Return a Python function for a module function, or the value of a closed expression.

        Functions of static shapes are compiled immediately, in the active pass context and dispatch
        contexts. Others are compiled when called, in the same contexts. A function that was already
        evaluated in these contexts is not compiled again.

        Parameters
        ----------
        expr : relax.Function, GlobalVar or expression, optional
            Function or expression to evaluate; `main` by default.
        binds : dict of variable to array or constant, optional
            Values of free variables of `expr`.

        Raises
        ------
        BuildError
            There is no module, or the function does not compile.
        """
        if expr is not None and not isinstance(
            expr, (relax.Function, OpenFunction, tvm.ir.GlobalVar)
        ):
            return self._compiled(expr, binds or {})()
        contexts = None if binds or isinstance(expr, OpenFunction) else _contexts_key()
        if contexts is None:
            return self._compiled(expr, binds or {})
        known = [*(self.mod.functions_items() if self.mod is not None else ())]
        nodes = [expr, *(node for pair in known for node in pair)]
        key = contexts, tuple(map(handle, nodes[1:])), None if expr is None else handle(expr)
        if key not in self._known:
            if len(self._known) == _MOST_KEPT:
                del self._known[next(iter(self._known))]
            # A handle is unique only as long as its node is alive.
            self._known[key] = nodes, self._compiled(expr, {})
        return self._known[key][1]

    def _compiled(self, expr: Any, binds: Mapping[Any, Any]) -> Compiled:
        mod, name = self._module(expr, binds)
        params = self.params if expr is None or isinstance(expr, tvm.ir.GlobalVar) else {}
        function = CompiledFunction(mod, name, self.target, params)
        return Compiled(function, self.device, results_on_host=self.kind in ("graph", "aot"))

    def _module(self, expr: Any, binds: Mapping[Any, Any]) -> tuple[tvm.IRModule, str]:
        if expr is None or isinstance(expr, tvm.ir.GlobalVar):
            if self.mod is None:
                raise BuildError("no module to evaluate; pass mod= to create_executor")
            return self.mod, "main" if expr is None else str(expr.name_hint)
        if not isinstance(expr, (relax.Function, OpenFunction)):
            expr = OpenFunction(free_vars(expr), as_expr(expr))
        mod = as_main(expr, self.mod)
        values = {str(getattr(key, "name", key)): _array(value) for key, value in binds.items()}
        if values:
            mod, _ = bind.bind_params(mod, values)
        return mod, "main"


def _array(value: Any) -> Any:
    """Return the array of a constant; other values are arrays already."""
    return value.value if isinstance(value, tvm.ir.GenericConst) else value


def _contexts_key() -> Any:
    """Cache key of the active contexts; None if the contexts cannot be compared."""
    with default_opt_level():
        context = tvm.transform.PassContext.current()
    digests = [each.content_digest() for each in autotvm.DispatchContext.active()]
    digests += [each.content_digest() for each in auto_scheduler.DispatchContext.active()]
    if context.instruments or None in digests or auto_scheduler.is_extracting():
        return None
    passes = (list(context.required_pass), list(context.disabled_pass), dict(context.config))
    return int(context.opt_level), repr(passes), repr(digests)
