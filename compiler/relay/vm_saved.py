"""Executables of the virtual machine that are compiled once and kept: code and library.

The library is a TVM module, which `export_library` writes to a file. The code is everything that
running it needs beside it: names of functions and parameters, metadata and weights.

    b"baton vm 1\n" | length of the JSON, 8 bytes, little-endian | JSON | parameter file
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from ..errors import BuildError, InputError, LoadError
from ..graph.constants import integers
from ..lowering import build as driver
from ..runtime import forks
from ..runtime.executor import GraphExecutor
from ..runtime.factory import FactoryModule
from ..runtime.metadata import Metadata
from .build_module import as_module
from .executor import has_conditions, without_planning
from .flatten import lower
from .saved import load_param_dict, save_param_dict

_MAGIC = b"baton vm 1\n"


class ScheduledFunction:
    """`main` of a library that `relay.build` made, as a function of arrays."""

    def __init__(self, library: FactoryModule, device: Any) -> None:
        self._executor: GraphExecutor = library[library.libmod_name](device)
        self.parameters = [info.name for info in library.metadata.inputs]
        self._results = len(library.metadata.outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._executor.run(**dict(zip(self.parameters, args)), **kwargs)
        found = [self._executor.get_output(index) for index in range(self._results)]
        return found[0] if len(found) == 1 else found


class PlainFunction:
    """A function of a library that TVM alone made: of a module with conditions or recursion."""

    def __init__(self, machine: Any, name: str, parameters: list[str], device: Any) -> None:
        self._function = machine[name]
        self.parameters = parameters
        self._device = device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .executor import as_argument, as_result, on_device

        forks.note_kernels()
        named = {**dict(zip(self.parameters, args)), **kwargs}
        missing = [name for name in self.parameters if name not in named]
        if missing:
            raise InputError(f"no value is given for {', '.join(missing)}")
        values = [as_argument(named[name], None) for name in self.parameters]
        return as_result(self._function(*[on_device(each, self._device) for each in values]))


class SavedExecutable:
    """What `load_exec` returns; run it with `VirtualMachine(executable, device)`.

    Attributes
    ----------
    library : FactoryModule or tvm.runtime.Module
        Of a module that is `main` alone, what `relay.build` made of it; of others TVM's library.
    parameters : dict of str to list of str
        Names of each function's parameters.
    """

    def __init__(self, library: Any, parameters: Mapping[str, list[str]]) -> None:
        self.library = library
        self.parameters = dict(parameters)

    @property
    def globals(self) -> list[str]:
        """Names of the functions that can be called."""
        return list(self.parameters)

    @property
    def lib(self) -> Any:
        """TVM's module."""
        is_factory = isinstance(self.library, FactoryModule)
        return self.library.get_lib() if is_factory else self.library

    def function(self, name: str, device: Any) -> Any:
        """A function as a Python function on `device`."""
        if name not in self.parameters:
            raise InputError(f"there is no function {name!r}; there are {', '.join(self.globals)}")
        if isinstance(self.library, FactoryModule):
            return ScheduledFunction(self.library, device)
        machine = relax.VirtualMachine(_runnable(self.library), device)
        return PlainFunction(machine, name, self.parameters[name], device)

    def get_function_params(self, name: str) -> list[str]:
        """Names of a function's parameters."""
        return self.parameters[name]

    def save(self) -> tuple[bytearray, Any]:
        """The code, and the library; `load_exec` takes both."""
        header: dict[str, Any] = {"parameters": self.parameters}
        weights = b""
        if isinstance(self.library, FactoryModule):
            header["metadata"] = self.library.metadata.to_json()
            weights = bytes(save_param_dict(self.library.get_params()))
        text = json.dumps(header).encode()
        return bytearray(_MAGIC + len(text).to_bytes(8, "little") + text + weights), self.lib


def compiled(mod: tvm.IRModule, target: Any, params: Mapping[str, Any]) -> SavedExecutable:
    """Compile a module of known shapes.

    Raises
    ------
    BuildError
        An extent of a parameter is only known at run time.
    """
    functions = {
        str(gvar.name_hint): function
        for gvar, function in mod.functions_items()
        if isinstance(function, relax.Function)
    }
    for name, function in functions.items():
        for var in function.params:
            if not _is_known(var.ty):
                raise BuildError(
                    f"an extent of {name}'s parameter {var.name} is only known at run time; a "
                    "library that is kept needs shapes: give them to the importer"
                )
    if not functions:
        raise BuildError("the module has no function to compile")
    is_plain = all(isinstance(var.ty, relax.TensorType) for var in functions[min(functions)].params)
    if list(functions) == ["main"] and is_plain and not has_conditions(mod):
        library = driver.build(as_module(mod), target, params, "default")
        names = [info.name for info in library.metadata.inputs]
        return SavedExecutable(library, {"main": names})
    if params:
        from ..lowering import bind

        mod = bind.bind_params(mod, params, "main")[0]
    with target, without_planning(mod):
        executable = tvm.compile(lower(mod), target=target)
    names_of = {name: [str(var.name) for var in mod[name].params] for name in functions}
    return SavedExecutable(executable.mod, names_of)


def _is_known(ty: Any) -> bool:
    """Whether a type says all extents."""
    if isinstance(ty, relax.TupleType):
        return all(map(_is_known, ty.fields))
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return False
    return integers(ty.shape.values) is not None


def load_exec(bytecode: bytes | bytearray, lib: Any) -> SavedExecutable:
    """An executable of what `save` returned, or its library loaded from a file again.

    Raises
    ------
    LoadError
        The bytes are none that `save` returned.
    """
    code = bytes(bytecode)
    begin = len(_MAGIC) + 8
    end = begin + int.from_bytes(code[len(_MAGIC) : begin], "little")
    if not code.startswith(_MAGIC) or end > len(code):
        raise LoadError("the code of an executable is what Executable.save() returned first")
    try:
        header = json.loads(code[begin:end])
        parameters = {str(name): [*map(str, names)] for name, names in header["parameters"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(f"the code of an executable is damaged: {error}") from error
    if "metadata" not in header:
        return SavedExecutable(lib, parameters)
    weights = load_param_dict(code[end:])
    metadata = Metadata.from_json(header["metadata"])
    library = FactoryModule(_runnable(lib), metadata, weights)
    return SavedExecutable(library, parameters)


def _runnable(lib: Any) -> Any:
    """A library that can run: one that holds object code is linked first."""
    if any(each.kind == "static_library" for each in lib.imports):
        return tvm.runtime.Executable(lib).jit()
    return lib
