"""`relay.vm`: compile modules with static or dynamic shapes for the virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.runtime.module import BenchmarkResult

from .. import target as targets
from ..errors import BuildError, InputError
from ..ir.rewrite import functions_by_name
from ..runtime.factory import FactoryModule
from ..runtime.graph_executor import time_repeats
from ..runtime.kv_cache import KVCache
from ..runtime.tensors import copy_into
from .adt_eval import evaluated
from .build_module import only_target, optimize
from .calling_convention import as_main
from .compiled_function import Compiled, CompiledFunction, Contexts
from .function import OpenFunction
from .vm_saved import SavedExecutable, SavedFunction, can_be_kept, compiled, interface_of, load_exec


class Executable:
    """Result of `relay.vm.compile`: run it with `VirtualMachine(executable, device)`.

    A `main` of static or named symbolic extents is compiled immediately, as by `relay.build`.
    Functions that `main` does not call are compiled on first use. Functions over `relay.Any()` are
    compiled for the argument shapes of their calls. Files, `stats` and similar methods use one
    library for all shapes.
    """

    def __init__(self, mod: tvm.IRModule, target: Any, params: Mapping[str, Any]):
        self.ir_mod = mod
        self.target = target
        self.params = dict(params)
        self.globals = list(functions_by_name(mod))
        """Names of the callable functions."""
        self._contexts = Contexts.active()
        self._functions: dict[str, CompiledFunction] = {}
        self._compiled: SavedExecutable | None = None
        if can_be_kept(mod):
            self._compiled = compiled(mod, target, self.params)

    def function(self, name: str, device: Any) -> Any:
        """Wrap a function of the module as a Python function on `device`."""
        if name not in self.globals:
            raise InputError(
                f"unknown function {name!r}; the functions are {', '.join(self.globals)}"
            )
        if self._compiled is not None and name in self._compiled.globals:
            return self._compiled.function(name, device)
        if name not in self._functions:
            self._functions[name] = self._contexts.run(
                lambda: CompiledFunction(self.ir_mod, name, self.target, self.params)
            )
        return Compiled(self._functions[name], device)

    def get_function_params(self, name: str) -> list[str]:
        """Names of a function's parameters."""
        return self.function(name, tvm.cpu()).parameters

    def compiled(self) -> SavedExecutable:
        """Compile in the form that is saved; BuildError if a parameter's rank is unknown."""
        if self._compiled is None:
            self._compiled = self._contexts.run(
                lambda: compiled(self.ir_mod, self.target, self.params)
            )
        return self._compiled

    @property
    def mod(self) -> Any:
        """The library, written to a file by `export_library`; see `compiled`."""
        return self.compiled().library

    def __getattr__(self, name: str) -> Any:
        # lib, save, report, stats, bytecode
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.compiled(), name)

    load_exec = staticmethod(load_exec)


def executable_of(library: FactoryModule) -> SavedExecutable:
    """Create the executable of a library from the build driver, in memory or loaded from a file."""
    return SavedExecutable(library, {"main": interface_of(library)})


class VirtualMachine:
    """Runs the functions of an executable.

    Parameters
    ----------
    exe : Executable, SavedExecutable or FactoryModule
        Result of `relay.vm.compile` or `Executable.load_exec`, or an exported and loaded library.
    device : tvm.runtime.Device
        Device to run on.
    memory_cfg
        Accepted without effect: memory is pooled.
    """

    def __init__(
        self,
        exe: Executable | SavedExecutable | FactoryModule,
        device: Any = None,
        memory_cfg: Any = None,
    ):
        if isinstance(exe, FactoryModule):
            exe = executable_of(exe)
        self.executable = exe
        self.device = device or tvm.cpu()
        self._functions: dict[str, Any] = {}
        self._inputs: dict[str, dict[str, Any]] = {}
        self._result: Any = None

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self.executable.function(name, self.device)
        return self._functions[name]

    def make_kv_cache(self) -> KVCache:
        """Create an empty key-value cache for `main`; see `relay.with_kv_cache`."""
        made: KVCache = self._kept().make_kv_cache()
        return made

    def use_kv_cache(self, cache: KVCache) -> None:
        """Append rows to a cache in calls of `main`, which then take only the other inputs."""
        self._kept().use_kv_cache(cache)

    def _kept(self) -> SavedFunction:
        function = self._function("main")
        if not isinstance(function, SavedFunction):
            raise InputError("main has no separate library and supports no key-value cache")
        return function

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set arguments of the next call of a function, by position or by name."""
        names = self._function(func_name).parameters
        self._inputs[func_name] = {**dict(zip(names, args)), **kwargs}

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set one argument, by index or by name."""
        if args:
            names = self._function(func_name).parameters
            kwargs = {args[0] if isinstance(args[0], str) else names[int(args[0])]: args[1]}
        self._inputs.setdefault(func_name, {}).update(kwargs)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function, with these arguments or those of `set_input`."""
        self._result = self._function(func_name)(*args, **self._given(func_name, args, kwargs))
        return self._result

    def _given(
        self, func_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Arguments by name; includes those of `set_input` if none are given by position."""
        return {**(self._inputs.get(func_name, {}) if not args else {}), **kwargs}

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Call a function as `invoke` does; `get_outputs` returns the result."""
        self.invoke(func_name, *args, **kwargs)

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Call a function with arguments by name; copy its results into `output_args`."""
        self.invoke(func_name, **input_args)
        for found, out in zip(self.get_outputs(), output_args):
            copy_into(found, out, f"a result of {func_name}")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call `main`."""
        return self.invoke("main", *args, **kwargs)

    def benchmark(
        self,
        device: Any,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time calls of a function; parameters as for `GraphModule.benchmark`.

        The arguments are copied to the device once. With `end_to_end`, arguments and results are
        copied in each call.
        """
        del limit_zero_time_iterations, device
        function = self._function(func_name)
        given = self._given(func_name, args, kwargs)
        call = function.ready(*args, **given)

        def once() -> None:
            made = function(*args, **given) if end_to_end else call()
            if end_to_end:
                for each in made if isinstance(made, list) else [made]:
                    each.numpy()
            self.device.sync()

        pauses = cooldown_interval_ms, repeats_to_cooldown
        return time_repeats(once, repeat, number, min_repeat_ms, *pauses)

    def time_evaluator(self, func_name: str, dev: Any, **kwargs: Any) -> Callable[..., Any]:
        """Create a function of arguments, by default those of `set_input`, that times a call.

        `func_name`: name of the function; if "invoke", the evaluator takes the name as its first
        argument. `dev`, `**kwargs`: as for `benchmark`, `number` 10 and `repeat` 1 by default.
        """
        options = {"number": 10, "repeat": 1, **kwargs}

        def evaluate(*args: Any) -> BenchmarkResult:
            name, *values = args if func_name == "invoke" else (func_name, *args)
            return self.benchmark(dev, *values, func_name=name, **options)

        return evaluate

    @property
    def module(self) -> VirtualMachine:
        """Object that had `time_evaluator` in TVM: this virtual machine."""
        return self

    def get_outputs(self) -> list[Any]:
        """Results of the last call."""
        return self._result if isinstance(self._result, list) else [self._result]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Index of a parameter; -1 if the function has no parameter of this name."""
        names = self._function(func_name).parameters
        return names.index(input_name) if input_name in names else -1


class VMCompiler:
    """The steps of `compile` as separate methods."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._executable: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values of parameters of `main` for `lower` and `optimize`."""
        self._params = dict(params)

    def get_params(self) -> dict[str, Any]:
        """Values given to `set_params`."""
        return dict(self._params)

    def lower(self, mod: Any, target: Any = None, target_host: Any = None) -> None:
        """Set the module to compile."""
        self._executable = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Do nothing: code is generated for the shapes of each call."""

    def get_exec(self) -> Executable:
        """Executable of the module given to `lower`."""
        if self._executable is None:
            raise BuildError("VMCompiler.lower comes before get_exec")
        return self._executable

    def optimize(
        self,
        mod: Any,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[tvm.IRModule, dict[str, Any]]:
        """See `relay.optimize`."""
        del target_host
        if params:
            self.set_params(params)
        return optimize(mod, target, self._params)


def compile(
    mod: tvm.IRModule | relax.Function,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a module for the virtual machine.

    Parameters
    ----------
    mod : tvm.IRModule or relax.Function
        Module to compile; extents may be `relay.Any()`.
    target, target_host
        Compilation target; by default the target of the surrounding `with target:`.
    params : dict of str to array, optional
        Values of parameters of `main`.
    """
    if isinstance(mod, (relax.Function, OpenFunction)):
        mod = as_main(mod)
    if not isinstance(mod, tvm.IRModule):
        raise BuildError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    mod = evaluated(mod)
    return Executable(mod, targets.parse(only_target(target), target_host), params or {})
