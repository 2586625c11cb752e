"""`relay.vm`: modules compiled for the virtual machine, which takes any shapes."""

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
from .vm_saved import (
    SavedExecutable,
    SavedFunction,
    can_be_kept,
    compiled,
    interface_of,
    load_exec,
)


class Executable:
    """What `relay.vm.compile` returns: run it with `VirtualMachine(executable, device)`.

    A `main` whose extents are known or have names is compiled at once, as `relay.build` compiles
    it, and so are functions that it does not call when they are asked for. Those of `relay.Any()`
    are compiled when they are called with arguments of new shapes; what is kept in files, and
    described by `stats` and the like, is one library for all of them.
    """

    def __init__(self, mod: tvm.IRModule, target: Any, params: Mapping[str, Any]):
        self.ir_mod = mod
        self.target = target
        self.params = dict(params)
        self.globals = list(functions_by_name(mod))
        """Names of the functions that can be called."""
        self._contexts = Contexts.active()
        self._functions: dict[str, CompiledFunction] = {}
        self._compiled: SavedExecutable | None = None
        if can_be_kept(mod):
            self._compiled = compiled(mod, target, self.params)

    def function(self, name: str, device: Any) -> Any:
        """A function of the module as a Python function on `device`."""
        if name not in self.globals:
            raise InputError(f"there is no function {name!r}; there are {', '.join(self.globals)}")
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
        """The module as it is kept in files.

        Raises
        ------
        BuildError
            A parameter is of unknown rank.
        """
        if self._compiled is None:
            self._compiled = self._contexts.run(
                lambda: compiled(self.ir_mod, self.target, self.params)
            )
        return self._compiled

    @property
    def mod(self) -> Any:
        """The library, whose `export_library` writes it to a file; see `compiled`."""
        return self.compiled().library

    def __getattr__(self, name: str) -> Any:
        # lib, save, report, stats, bytecode
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.compiled(), name)

    load_exec = staticmethod(load_exec)


def executable_of(library: FactoryModule) -> SavedExecutable:
    """The executable of a library that the build driver made, loaded from a file or not."""
    return SavedExecutable(library, {"main": interface_of(library)})


class VirtualMachine:
    """Runs the functions of an executable.

    Parameters
    ----------
    exe : Executable, SavedExecutable or FactoryModule
        From `relay.vm.compile`, `Executable.load_exec`, or a file that a library was exported to.
    device : tvm.runtime.Device
        Where to run.
    memory_cfg
        Accepted, and without influence: memory is pooled.
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
        """An empty cache of keys and values of `main`; see `relay.with_kv_cache`."""
        made: KVCache = self._kept().make_kv_cache()
        return made

    def use_kv_cache(self, cache: KVCache) -> None:
        """Have calls of `main`, which take the other inputs then, add rows to a cache."""
        self._kept().use_kv_cache(cache)

    def _kept(self) -> SavedFunction:
        function = self._function("main")
        if not isinstance(function, SavedFunction):
            raise InputError("main has no library of its own, and keeps no cache")
        return function

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Arguments of the next call of a function, by position or by name."""
        names = self._function(func_name).parameters
        self._inputs[func_name] = {**dict(zip(names, args)), **kwargs}

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """One argument: its place and value, or its name and value."""
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
        """Arguments by name: those of `set_input` too where none are given by position."""
        return {**(self._inputs.get(func_name, {}) if not args else {}), **kwargs}

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Call a function as `invoke` does; `get_outputs` has the result."""
        self.invoke(func_name, *args, **kwargs)

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Call a function with arguments by name; its results are copied into `output_args`."""
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

        The arguments are copied to the device once, or with `end_to_end` in each call, whose
        results are then copied back.
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

        return BenchmarkResult(
            time_repeats(
                once,
                repeat,
                number,
                (min_repeat_ms or 0) / 1e3,
                cooldown_interval_ms / 1e3,
                repeats_to_cooldown,
            )
        )

    def time_evaluator(self, func_name: str, dev: Any, **kwargs: Any) -> Callable[..., Any]:
        """A function of arguments, those of `set_input` by default, that times their call.

        Parameters
        ----------
        func_name : str
            Of the function; "invoke" has the evaluator take that name before the arguments.
        dev, **kwargs
            As for `benchmark`, `number` 10 and `repeat` 1 by default.
        """
        options = {"number": 10, "repeat": 1, **kwargs}

        def evaluate(*args: Any) -> BenchmarkResult:
            name, *values = args if func_name == "invoke" else (func_name, *args)
            return self.benchmark(dev, *values, func_name=name, **options)

        return evaluate

    @property
    def module(self) -> VirtualMachine:
        """What had `time_evaluator` in TVM: the machine itself."""
        return self

    def get_outputs(self) -> list[Any]:
        """Results of the last call."""
        return self._result if isinstance(self._result, list) else [self._result]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Place of a parameter; -1 if the function has none of that name."""
        names = self._function(func_name).parameters
        return names.index(input_name) if input_name in names else -1


class VMCompiler:
    """The steps of `compile`, one by one."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._executable: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Values of parameters of `main`, for `lower` and `optimize`."""
        self._params = dict(params)

    def get_params(self) -> dict[str, Any]:
        """Those values."""
        return dict(self._params)

    def lower(self, mod: Any, target: Any = None, target_host: Any = None) -> None:
        """Take a module to compile."""
        self._executable = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Code is generated for the shapes that a function is called with."""

    def get_exec(self) -> Executable:
        """The executable of the module that `lower` took."""
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
        The module; extents may be `relay.Any()`.
    target, target_host
        What to compile for; without one, the target of the surrounding `with target:`.
    params : dict of str to array, optional
        Values of parameters of `main`.
    """
    if isinstance(mod, (relax.Function, OpenFunction)):
        mod = as_main(mod)
    if not isinstance(mod, tvm.IRModule):
        raise BuildError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    mod = evaluated(mod)
    return Executable(mod, targets.parse(only_target(target), target_host), params or {})
