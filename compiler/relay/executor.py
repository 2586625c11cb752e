"""`relay.create_executor` and `relay.vm`: modules that run as Python functions, any shapes.

`main` is compiled for the shapes of the arguments it is called with, once for each: extents that
the text leaves open, and shapes that are operands, are known then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import target as targets
from ..errors import BuildError, InputError
from ..lowering import bind
from ..runtime import forks
from ..runtime.tensors import for_kernels
from .flatten import lower
from .function import Function, OpenFunction
from .specialize import specialize

KINDS = ("graph", "vm", "debug", "aot")


def create_executor(
    kind: str = "debug",
    mod: tvm.IRModule | None = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """An executor, which evaluates functions of a module.

    Parameters
    ----------
    kind : str
        "graph", "vm", "debug" or "aot"; they differ in nothing that results show.
    mod : tvm.IRModule, optional
        The module; without it, `evaluate` takes functions.
    device, target
        Where to run and what to compile for.
    params : dict of str to array, optional
        Values of parameters of `main`, bound before it is compiled.
    """
    if kind not in KINDS:
        raise BuildError(f"there is no executor {kind!r}; there are {', '.join(KINDS)}")
    return Executor(kind, mod, device or tvm.cpu(), target, params)


class Executor:
    """See `create_executor`."""

    def __init__(
        self, kind: str, mod: tvm.IRModule | None, device: Any, target: Any, params: Any
    ) -> None:
        self.kind = kind
        self.mod = mod
        self.device = device
        self.target = targets.parse(target or "llvm")
        self.params = dict(params or {})

    def evaluate(self, expr: Any = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """A Python function for a function of the module, or the value of a closed expression.

        Parameters
        ----------
        expr : relax.Function, GlobalVar or expression, optional
            What to evaluate; `main` without it.
        binds : dict of variable to array, optional
            Values of free variables of `expr`.
        """
        mod, name = self._module(expr, binds or {})
        function = mod[name]
        run = Compiled(mod, name, self.target, self.device, self.params)
        if expr is not None and not isinstance(expr, (Function, tvm.ir.GlobalVar)):
            return run()
        del function
        return run

    def _module(self, expr: Any, binds: Mapping[Any, Any]) -> tuple[tvm.IRModule, str]:
        if expr is None or isinstance(expr, tvm.ir.GlobalVar):
            if self.mod is None:
                raise BuildError("there is no module to evaluate; give create_executor mod=")
            return self.mod, "main" if expr is None else str(expr.name_hint)
        if isinstance(expr, (relax.Function, OpenFunction)):
            function = expr if isinstance(expr, relax.Function) else expr.of()
        else:
            function = OpenFunction(relax.analysis.free_vars(expr), expr).of()
        mod = tvm.IRModule(dict(self.mod.functions_items()) if self.mod is not None else {})
        mod["main"] = function.without_attr("global_symbol")
        values = {str(getattr(key, "name", key)): value for key, value in binds.items()}
        if values:
            mod, _ = bind.bind_params(mod, values)
        return mod, "main"


class Compiled:
    """A function of a module, compiled for the shapes it meets.

    Calling it with arrays, or tuples of them, gives a TVM tensor, or a list for a tuple.
    """

    def __init__(
        self, mod: tvm.IRModule, name: str, target: Any, device: Any, params: Mapping[str, Any]
    ) -> None:
        self.mod = bind.bind_params(mod, params, name)[0] if params else mod
        self.name = name
        self.target = target
        self.device = device
        self._built: dict[Any, Callable[..., Any]] = {}

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that are left."""
        return [str(var.name) for var in self.mod[self.name].params]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        types = [var.ty for var in self.mod[self.name].params]
        values = [as_argument(*each) for each in zip(self._ordered(args, kwargs), types)]
        key = tuple(map(_signature, values))
        forks.note_kernels()
        if key not in self._built:
            self._built[key] = self._build(values)
        return as_result(self._built[key](*[on_device(v, self.device) for v in values]))

    def _ordered(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        names = self.parameters
        values = list(args)
        for name in names[len(args) :]:
            if name not in kwargs:
                raise InputError(f"{self.name} takes {', '.join(names)}; {name} is missing")
            values.append(kwargs[name])
        if len(values) > len(names):
            raise InputError(f"{self.name} takes {len(names)} arguments, got {len(values)}")
        return values

    def _build(self, values: list[Any]) -> Callable[..., Any]:
        mod = lower(specialize(self.mod, values, self.name))
        with self.target, without_planning(mod):
            executable = tvm.compile(mod, target=self.target)
        machine = relax.VirtualMachine(executable, self.device)
        return machine[self.name]


def without_planning(mod: tvm.IRModule) -> AbstractContextManager[Any]:
    """A context for modules with conditions: planned memory of nested branches is freed too early.

    Other modules are left to the context that is active: to enter it once more would call its
    instruments.
    """
    context = tvm.transform.PassContext.current()
    if not has_conditions(mod):
        return nullcontext()
    return tvm.transform.PassContext(
        opt_level=context.opt_level,
        required_pass=list(context.required_pass),
        disabled_pass=[*context.disabled_pass, "StaticPlanBlockMemory"],
        config=dict(context.config),
    )


def has_conditions(mod: tvm.IRModule) -> bool:
    """Whether a function of the module has an `If`."""
    found = False

    def look(expr: Any) -> None:
        nonlocal found
        found = found or isinstance(expr, relax.If)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, look)
    return found


def as_argument(value: Any, ty: Any) -> Any:
    """A value as a tensor or tuple of tensors; arrays are copied into a parameter's dtype."""
    if isinstance(value, (list, tuple)) and not isinstance(ty, relax.TensorType):
        types = ty.fields if isinstance(ty, relax.TupleType) else [ty] * len(value)
        return tuple(map(as_argument, value, types))
    if isinstance(value, tvm.runtime.Tensor):
        return value
    array = np.asarray(value)
    if isinstance(ty, relax.TensorType) and ty.dtype is not None:
        array = array.astype(str(ty.dtype), copy=False)
    return np.ascontiguousarray(array).reshape(array.shape)


def _signature(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_signature, value))
    return tuple(value.shape), str(value.dtype)


def on_device(value: Any, device: Any) -> Any:
    """A tensor, or tuple of them, that kernels on a device can take; copied only if need be."""
    if isinstance(value, tuple):
        return tuple(on_device(item, device) for item in value)
    is_tensor = isinstance(value, tvm.runtime.Tensor)
    return for_kernels(value, device) if is_tensor else tvm.runtime.tensor(value, device)


def as_result(value: Any) -> Any:
    if isinstance(value, tvm.runtime.Tensor):
        return value
    if isinstance(value, (list, tuple)) or hasattr(value, "__getitem__"):
        return [as_result(value[index]) for index in range(len(value))]
    return value
