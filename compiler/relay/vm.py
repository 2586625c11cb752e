"""`relay.vm`: modules compiled for the virtual machine, which takes any shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from .. import target as targets
from ..errors import BuildError, InputError
from .build_module import _only_target
from .executor import Compiled


class Executable:
    """What `relay.vm.compile` returns: run it with `VirtualMachine(executable, device)`.

    Functions are compiled when they are first called with arguments of new shapes.
    """

    def __init__(self, mod: tvm.IRModule, target: Any, params: Mapping[str, Any]):
        self.mod = mod
        self.target = target
        self.params = dict(params)

    @property
    def globals(self) -> list[str]:
        """Names of the functions that can be called."""
        return [
            gvar.name_hint
            for gvar, function in self.mod.functions_items()
            if isinstance(function, relax.Function)
        ]

    def function(self, name: str, device: Any) -> Compiled:
        """A function of the module as a Python function on `device`."""
        if name not in self.globals:
            raise InputError(f"there is no function {name!r}; there are {', '.join(self.globals)}")
        return Compiled(self.mod, name, self.target, device, self.params)

    def get_function_params(self, name: str) -> list[str]:
        """Names of a function's parameters."""
        return self.function(name, tvm.cpu()).parameters


class VirtualMachine:
    """Runs the functions of an executable.

    Parameters
    ----------
    exe : Executable
        From `relay.vm.compile`.
    device : tvm.runtime.Device
        Where to run.
    memory_cfg
        Accepted, and without influence: memory is pooled.
    """

    def __init__(self, exe: Executable, device: Any = None, memory_cfg: Any = None):
        self.executable = exe
        self.device = device or tvm.cpu()
        self._functions: dict[str, Compiled] = {}
        self._inputs: dict[str, dict[str, Any]] = {}
        self._result: Any = None

    def _function(self, name: str) -> Compiled:
        if name not in self._functions:
            self._functions[name] = self.executable.function(name, self.device)
        return self._functions[name]

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Arguments of the next call of a function, by position or by name."""
        names = self._function(func_name).parameters
        self._inputs[func_name] = {**dict(zip(names, args)), **kwargs}

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """One argument: its place and value, or its name and value."""
        if args:
            kwargs = {self._function(func_name).parameters[int(args[0])]: args[1]}
        self._inputs.setdefault(func_name, {}).update(kwargs)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function, with these arguments or those of `set_input`."""
        given = self._inputs.get(func_name, {}) if not args else {}
        self._result = self._function(func_name)(*args, **{**given, **kwargs})
        return self._result

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function with the arguments of `set_input`; `get_outputs` has the result."""
        self.invoke(func_name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call `main`."""
        return self.invoke("main", *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """Results of the last call."""
        return self._result if isinstance(self._result, list) else [self._result]

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """Place of a parameter; -1 if the function has none of that name."""
        names = self._function(func_name).parameters
        return names.index(input_name) if input_name in names else -1


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
    if isinstance(mod, relax.Function):
        mod = tvm.IRModule({"main": mod.without_attr("global_symbol")})
    if not isinstance(mod, tvm.IRModule):
        raise BuildError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    return Executable(mod, targets.parse(_only_target(target), target_host), params or {})
