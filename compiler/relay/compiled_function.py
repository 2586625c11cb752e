"""Functions of a module, compiled by the build driver.

A function of static or named symbolic shapes is compiled once. A function with anonymous dynamic
shapes (`relay.Any()`) or shapes passed as operands is compiled for the shapes of each call. If the
driver does not support a function, TVM alone compiles it, and a warning gives the reason.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
from tvm import relax

from ..ir.constants import leaf_types
from ..ir.rewrite import expressions_in, relax_functions
from ..lowering import bind
from ..lowering.codegen.compile_kernels import with_modules
from ..lowering.codegen.plan_devices import has_conditions
from ..lowering.offloaded_functions import backends, inline_into_callers
from ..runtime import forks
from ..runtime.executor import GraphExecutor
from ..runtime.factory import FactoryModule
from ..runtime.kv_cache import KVCache
from ..runtime.tensors import for_kernels
from ..support.depth_first import depth_first
from ..tvm_workarounds.empty_reductions import PIPELINE
from .adt_eval import evaluated
from .byoc import as_subgraphs
from .calling_convention import (
    Interface,
    as_argument,
    as_module,
    dtypes,
    grouped,
    leaves,
    only_tensor,
    with_tensor_parameters,
)
from .data_values import ConstructorValue, form_of_result, made_by, with_data
from .external_codegen import compile_external
from .lower_and_build import lower_and_build
from .relax_to_relay import imported_relax_module, subgraphs_to_relay
from .relay_to_relax import lower
from .specialize import check_values, specialize
from .ty import is_any
from .type_infer import type_of

Library: TypeAlias = "FactoryModule | relax.VMExecutable"
"""Library of the build driver, or of TVM alone."""


class CompiledFunction:
    """A function of a module, with one library per list of argument types.

    A function with static or named symbolic extents has one library, compiled immediately. Others
    are compiled when they are called, with the pass context and the dispatch contexts that were
    active when this object was created. Unknown names in `params` are ignored.
    """

    def __init__(
        self, mod: tvm.IRModule, name: str, target: Any, params: Mapping[str, Any] | None = None
    ) -> None:
        mod = evaluated(mod, name)
        self.mod = bind.bind_params(mod, params, name)[0] if params else mod
        self.name = name
        self.target = target
        self.interface = Interface.of(self.mod[name])
        types = [var.ty for var in self.mod[name].params]
        self._dtypes = list(map(dtypes, types))
        self._bound = frozenset(params or ())
        self._contexts = Contexts.active()
        self._lock = threading.Lock()
        self._libraries: dict[Any, Library] = {}
        self._is_one = all(map(has_one_library, types))
        if self._is_one:
            self._libraries[None] = compile_function(self.mod, name, target)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Tensors, or tuples of them, in parameters' dtypes; InputError if missing or unknown."""
        named = {name: kwargs[name] for name in kwargs if name not in self._bound}
        return list(map(as_argument, self.interface.ordered(args, named), self._dtypes))

    def library(self, values: Sequence[Any]) -> Library:
        """Library for the arguments' shapes, compiled on demand; InputError or BuildError."""
        if self._is_one:
            check_values(self.mod[self.name], values)
            return self._libraries[None]
        key = tuple(map(_signature, values))
        with self._lock:
            if key not in self._libraries:
                mod = specialize(self.mod, values, self.name)
                self._libraries[key] = self._contexts.run(
                    lambda: compile_function(mod, self.name, self.target)
                )
            return self._libraries[key]

    @property
    def libraries(self) -> list[Library]:
        """Libraries compiled so far, in order."""
        return list(self._libraries.values())


class Compiled:
    """A compiled function on a device: call it with arrays, or tuples of them.

    Returns a TVM tensor, or a list for a tuple. Concurrent calls are serialized. `results_on_host`:
    copy results to the CPU, as the graph executor did.
    """

    def __init__(
        self, function: CompiledFunction, device: Any, results_on_host: bool = False
    ) -> None:
        self.function = function
        self.device = device
        self._form = form_of_result(function.mod[function.name])
        self._to_host = results_on_host and device.type != "cpu"
        self._lock = threading.Lock()
        self._loaded: dict[int, Loaded] = {}

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that are not bound."""
        return self.function.interface.names

    @property
    def reports(self) -> list[Any]:
        """Build reports of the libraries compiled so far."""
        made = self.function.libraries
        return [each.report for each in made if isinstance(each, FactoryModule)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            result = self._ready(args, kwargs)()
        if self._form is not None:
            result = with_data(result, self._form)
        return _on_host(result) if self._to_host else result

    def ready(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Copy the arguments to the device and return the call without arguments, for timing."""
        with self._lock:
            return self._ready(args, kwargs)

    def _ready(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        values = self.function.arguments(args, kwargs)
        library = self.function.library(values)
        if id(library) not in self._loaded:
            interface = self.function.interface
            self._loaded[id(library)] = load(library, self.function.name, interface, self.device)
        return self._loaded[id(library)].ready(values)


class Scheduled:
    """A function of a library compiled by the build driver, on a device."""

    def __init__(self, library: FactoryModule, interface: Interface, device: Any) -> None:
        self._executor: GraphExecutor = library[library.libmod_name](device)
        self._interface = interface
        self._places = list(range(len(library.metadata.inputs)))
        self.make_kv_cache = self._executor.make_kv_cache

    def ready(self, values: Sequence[Any]) -> Callable[[], Any]:
        """Bind the arguments and return the call."""
        parts = self._interface.parameters
        tensors = [leaf for value, part in zip(values, parts) for leaf in leaves(value, part)]
        for index, tensor in zip(self._places, tensors):
            rank = len(self._executor.metadata.inputs[index].shape)
            self._executor.set_input(index, only_tensor(tensor, rank))
        return self._run

    def use_kv_cache(self, cache: KVCache) -> Interface:
        """Append rows to a cache from now on; return the interface of the remaining inputs."""
        self._executor.use_kv_cache(cache)
        taken = {cache.info.rows, *cache.tensors}
        names = [info.name for info in self._executor.metadata.inputs]
        self._places = [index for index, name in enumerate(names) if name not in taken]
        left = [names[index] for index in self._places]
        self._interface = replace(self._interface, names=left, parameters=[None] * len(left))
        return self._interface

    def _run(self) -> Any:
        self._executor.run()
        count = self._executor.get_num_outputs()
        found = (self._executor.get_output(index) for index in range(count))
        return grouped(found, self._interface.result)


class Plain:
    """A function of a library compiled by TVM alone, on a device."""

    def __init__(self, library: Any, name: str, device: Any) -> None:
        self._function = relax.VirtualMachine(library, device)[name]
        self._device = device

    def ready(self, values: Sequence[Any]) -> Callable[[], Any]:
        """Bind the arguments and return the call."""
        placed = [_on_device(value, self._device) for value in values]
        forks.note_kernels()
        return lambda: _as_result(self._function(*placed))


Loaded: TypeAlias = "Scheduled | Plain"


def load(library: Any, name: str, interface: Interface, device: Any) -> Loaded:
    """Load a function of a library on a device."""
    if isinstance(library, FactoryModule):
        return Scheduled(library, interface, device)
    return Plain(library, name, device)


def compile_function(mod: tvm.IRModule, name: str, target: Any) -> Library:
    """Compile a function of known ranks, by the build driver if supported; may raise BuildError."""
    imported = imported_relax_module(mod)
    mod = mod if imported is None else imported
    reason = obstacle(mod, name)
    if not reason:
        lowered = as_module(_as_main(mod, name))
        reason = "functions are values in it" if _has_function_values(lowered) else ""
    if not reason:
        return lower_and_build(lowered, target, {}, "default")
    return compile_with_tvm_only(mod, target, reason)


def compile_with_tvm_only(mod: tvm.IRModule, target: Any, reason: str) -> relax.VMExecutable:
    """Compile all functions of a module by TVM alone, and warn with the reason.

    Subgraphs whose backend or code generator compiles them keep its code.
    """
    warnings.warn(
        "TVM compiles the module without schedules, tuning logs and the targets of subgraphs, "
        f"because {reason}",
        stacklevel=2,
    )
    compiled, modules = compile_external(subgraphs_to_relay(as_subgraphs(mod)), target, {})
    lowered = with_modules(inline_into_callers(lower(compiled), backends(compiled)), modules)
    context = tvm.transform.PassContext.current()
    if not has_conditions(lowered):
        with target:
            return tvm.compile(lowered, target=target, tir_pipeline=PIPELINE)
    disabled = [*context.disabled_pass, "StaticPlanBlockMemory"]
    with target, _like(context, disabled):
        return tvm.compile(lowered, target=target, tir_pipeline=PIPELINE)


def obstacle(mod: tvm.IRModule, name: str) -> str:
    """Reason why the build driver cannot compile a function and its callees; "" if it may."""
    if _reachable(mod, name) is None:
        return "a function calls itself"
    function = mod[name]
    for var in function.params:
        if any(not isinstance(ty, relax.TensorType) for ty in leaf_types(var.ty)):
            return f"its parameter {var.name} is {type_of(var)}"
    for ty in leaf_types(function.ret_ty):
        if not isinstance(ty, relax.TensorType) or ty.ndim < 0:
            return f"its result is {type_of(function.ret_ty)}"
    return ""


def has_one_library(ty: Any) -> bool:
    """Whether a type is tensors whose extents are all static or named symbols."""
    return all(
        isinstance(each, relax.TensorType)
        and isinstance(each.shape, relax.ShapeExpr)
        and not any(map(is_any, each.shape.values))
        for each in leaf_types(ty)
    )


def covers(mod: tvm.IRModule, name: str) -> bool:
    """Whether a function reaches all other functions of the module through calls."""
    reached = _reachable(mod, name)
    return reached is not None and len(reached) == sum(
        isinstance(function, relax.Function) for _, function in mod.functions_items()
    )


def _reachable(mod: tvm.IRModule, name: str) -> list[str] | None:
    """Names of the Relax functions reachable from a function and its own; None if recursive."""

    @functools.cache
    def called(current: str) -> list[str]:
        gvars = expressions_in(mod[current], tvm.ir.GlobalVar)
        names = dict.fromkeys(str(gvar.name_hint) for gvar in gvars)
        return [each for each in names if isinstance(mod[each], relax.Function)]

    done: dict[str, None] = {}
    for current in depth_first([name], called):
        if not done.keys() >= set(called(current)):
            return None
        done[current] = None
    return list(done)


def _as_main(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Make a function over tensors the `main` of a module and drop unreachable functions."""
    needed = set(_reachable(mod, name) or ())
    values = _handed_over(mod, needed)
    functions: dict[Any, Any] = {}
    for gvar, function in mod.functions_items():
        own = str(gvar.name_hint)
        if own == name:
            main = with_tensor_parameters(function).with_attr("global_symbol", "main")
            functions[gvar if name == "main" else tvm.ir.GlobalVar("main")] = main
        elif not isinstance(function, relax.Function):
            functions[gvar] = function
        elif own in needed:
            is_public = "global_symbol" in (function.attrs or {})
            is_external = "Compiler" in (function.attrs or {})
            private = is_public and not is_external and own not in values
            functions[gvar] = function.without_attr("global_symbol") if private else function
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _handed_over(mod: tvm.IRModule, names: Iterable[str]) -> set[str]:
    """Names of functions passed as operands of calls, such as loop bodies."""
    calls = (call for name in names for call in expressions_in(mod[name], relax.Call))
    operands = (arg for call in calls for arg in call.args)
    return {str(arg.name_hint) for arg in operands if isinstance(arg, tvm.ir.GlobalVar)}


def _has_function_values(mod: tvm.IRModule) -> bool:
    """Whether a lowered module calls functions that are values."""
    functions = (f for _, f in relax_functions(mod))
    called = (call.op for each in functions for call in expressions_in(each.body, relax.Call))
    return any(isinstance(op, relax.Var) and not isinstance(op, tvm.ir.GlobalVar) for op in called)


@dataclass(frozen=True)
class Contexts:
    """Snapshot of the pass context and the dispatch contexts."""

    variables: contextvars.Context
    pass_context: tvm.transform.PassContext

    @staticmethod
    def active() -> Contexts:
        """Capture the active contexts."""
        return Contexts(contextvars.copy_context(), tvm.transform.PassContext.current())

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function in these contexts, without the instruments of exited pass contexts."""
        return self.variables.copy().run(self._in_pass_context, function)

    def _in_pass_context(self, function: Callable[[], Any]) -> Any:
        if tvm.transform.PassContext.current().same_as(self.pass_context):
            return function()
        with _like(self.pass_context, list(self.pass_context.disabled_pass)):
            return function()


def _like(context: tvm.transform.PassContext, disabled: list[str]) -> tvm.transform.PassContext:
    """Copy a pass context without its instruments."""
    return tvm.transform.PassContext(
        opt_level=context.opt_level,
        required_pass=list(context.required_pass),
        disabled_pass=disabled,
        config=dict(context.config),
    )


_dtype_name = functools.cache(str)  # uncached, numpy's dtype name takes as long as a small kernel


def _signature(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_signature, value))
    return tuple(value.shape), _dtype_name(value.dtype)


def _on_device(value: Any, device: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_on_device(item, device) for item in value)
    is_tensor = isinstance(value, tvm.runtime.Tensor)
    return for_kernels(value, device) if is_tensor else tvm.runtime.tensor(value, device)


def _as_result(value: Any) -> Any:
    """Group tensors into lists for tuples; data starts with its constructor's name."""
    if isinstance(value, tvm.runtime.Tensor) or not hasattr(value, "__getitem__"):
        return value
    if len(value) > 1 and isinstance(value[0], str):
        fields = (_as_result(value[index]) for index in range(2, len(value)))
        return made_by(str(value[0]), int(value[1].numpy()), fields)
    return [_as_result(each) for each in value]


def _on_host(value: Any) -> Any:
    if isinstance(value, ConstructorValue):
        return ConstructorValue(value.tag, map(_on_host, value), value.constructor)
    if isinstance(value, list):
        return [_on_host(each) for each in value]
    return value.copyto(tvm.cpu())
