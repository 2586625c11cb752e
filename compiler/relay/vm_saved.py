"""Saved executables of the virtual machine: code and library.

The library is a TVM module that `export_library` writes to a file. The code contains everything
else that is needed at run time: function names and interfaces, metadata and weights.

    b"baton vm 1\n" | length of the JSON, 8 bytes, little-endian | JSON | parameter file
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..errors import BuildError, InputError, LoadError
from ..ir.constants import leaf_types
from ..ir.rewrite import functions_by_name
from ..lowering import bind
from ..runtime.factory import FactoryModule
from ..runtime.kv_cache import KVCache
from ..runtime.metadata import Metadata
from .calling_convention import Interface, as_argument, tensors
from .compiled_function import (
    Loaded,
    Scheduled,
    compile_function,
    compile_with_tvm_only,
    covers,
    has_one_library,
    load,
)
from .saved import load_param_dict, save_param_dict

_MAGIC = b"baton vm 1\n"


class SavedFunction:
    """A function of a library on a device: call it with arrays, or tuples of them."""

    def __init__(self, loaded: Loaded, interface: Interface) -> None:
        self._loaded = loaded
        self._interface = interface

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        return self._interface.names

    def ready(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Copy the arguments to the device and return the call without arguments, for timing."""
        values = self._interface.ordered(args, kwargs)
        return self._loaded.ready(list(map(as_argument, values)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.ready(*args, **kwargs)()

    def make_kv_cache(self) -> KVCache:
        """Create an empty key-value cache; see `GraphExecutor.make_kv_cache`."""
        return self._scheduled().make_kv_cache()

    def use_kv_cache(self, cache: KVCache) -> None:
        """Append rows to a cache in later calls, which then take only the other inputs."""
        self._interface = self._scheduled().use_kv_cache(cache)

    def _scheduled(self) -> Scheduled:
        if not isinstance(self._loaded, Scheduled):
            raise InputError("TVM alone compiled the library, which keeps no cache")
        return self._loaded


class SavedExecutable:
    """Result of `load_exec`; run it with `VirtualMachine(executable, device)`.

    `library`: library that `relay.build` made of `main`. TVM's own library if the build driver does
    not support `main` or if there are functions that `main` does not call. `interfaces`: parameters
    and results of each function.
    """

    def __init__(self, library: Any, interfaces: Mapping[str, Interface]) -> None:
        self.library = library
        self.interfaces = dict(interfaces)

    @property
    def globals(self) -> list[str]:
        """Names of the callable functions."""
        return list(self.interfaces)

    @property
    def lib(self) -> Any:
        """The TVM module."""
        is_factory = isinstance(self.library, FactoryModule)
        return self.library.get_lib() if is_factory else self.library

    @property
    def report(self) -> Any:
        """Report of the build driver; None for a library of TVM alone."""
        return self.library.report if isinstance(self.library, FactoryModule) else None

    @property
    def stats(self) -> str:
        """Number of constants and functions in the virtual machine's code."""
        return str(self.lib["stats"]())

    @property
    def bytecode(self) -> str:
        """The virtual machine's code as text."""
        return str(self.lib["as_text"]())

    def get_late_bound_consts(self, byte_limit: int = 64) -> dict[str, Any]:
        """Remove the weights from the library and its future files, and return them by name.

        If no weight is larger than `byte_limit`, the library keeps all, and the result is empty.
        Raises BuildError: TVM alone compiled the library, whose code contains the constants.
        """
        if not isinstance(self.library, FactoryModule):
            raise BuildError("TVM alone compiled the library, whose constants are in its code")
        weights = dict(self.library.get_params())
        if all(_size(tensor) <= byte_limit for tensor in weights.values()):
            return {}
        self.library = self.library.remove_params()
        return weights

    def move_late_bound_consts(self, path: str | os.PathLike[str], byte_limit: int = 64) -> None:
        """Move the weights to a parameter file; see `get_late_bound_consts`."""
        weights = self.get_late_bound_consts(byte_limit)
        pathlib.Path(path).write_bytes(save_param_dict(weights))

    def load_late_bound_consts(self, path: str | os.PathLike[str]) -> None:
        """Load the weights from a file written by `move_late_bound_consts`."""
        self.library.load_late_bound_consts(path)

    def load_late_bound_consts_from_map(self, weights: Mapping[str, Any]) -> None:
        """Set the weights returned by `get_late_bound_consts`."""
        self.library.load_late_bound_consts_from_map(weights)

    def function(self, name: str, device: Any) -> SavedFunction:
        """Wrap a function as a Python function on `device`."""
        interface = self._interface(name)
        is_factory = isinstance(self.library, FactoryModule)
        library = self.library if is_factory else _runnable(self.library)
        return SavedFunction(load(library, name, interface, device), interface)

    def get_function_params(self, name: str) -> list[str]:
        """Names of a function's parameters."""
        return self._interface(name).names

    def _interface(self, name: str) -> Interface:
        if name not in self.interfaces:
            raise InputError(
                f"unknown function {name!r}; the functions are {', '.join(self.globals)}"
            )
        return self.interfaces[name]

    def save(self) -> tuple[bytearray, Any]:
        """Return the code and the library for `load_exec`."""
        header: dict[str, Any] = {
            "interfaces": {name: each.to_json() for name, each in self.interfaces.items()}
        }
        weights = b""
        if isinstance(self.library, FactoryModule):
            header["metadata"] = self.library.metadata.to_json()
            weights = bytes(save_param_dict(self.library.get_params()))
        text = json.dumps(header).encode()
        return bytearray(_MAGIC + len(text).to_bytes(8, "little") + text + weights), self.lib


def _size(tensor: Any) -> int:
    """Size of a tensor in bytes."""
    return math.prod(map(int, tensor.shape)) * tvm_ffi.dtype(str(tensor.dtype)).itemsize


def compiled(mod: tvm.IRModule, target: Any, params: Mapping[str, Any]) -> SavedExecutable:
    """Compile for all values of symbolic extents; BuildError if a parameter's rank is unknown."""
    functions = functions_by_name(mod)
    if not functions:
        raise BuildError("the module has no function to compile")
    for name, var in _of_open_extents(functions):
        if any(not isinstance(ty, relax.TensorType) or ty.ndim < 0 for ty in leaf_types(var.ty)):
            raise BuildError(
                f"the rank of {name}'s parameter {var.name} is only known at run time; a library "
                "that is kept needs it: give a shape to the importer"
            )
    if params:
        mod = bind.bind_params(mod, params, "main")[0]
    if "main" in functions and covers(mod, "main"):
        library = compile_function(mod, "main", target)
        if isinstance(library, FactoryModule):
            is_kept = library.metadata.kv_cache is not None  # then main has other parameters
            interface = interface_of(library) if is_kept else Interface.of(mod["main"])
            return SavedExecutable(library, {"main": interface})
    else:
        library = compile_with_tvm_only(
            mod, target, "several functions in one library can be called from outside"
        )
    interfaces = {name: Interface.of(mod[name]) for name in functions}
    return SavedExecutable(library.mod, interfaces)


def can_be_kept(mod: tvm.IRModule) -> bool:
    """Whether `main` has a single library and reaches all other functions of the module."""
    functions = functions_by_name(mod)
    return "main" in functions and not _of_open_extents(functions) and covers(mod, "main")


def _of_open_extents(functions: Mapping[str, relax.Function]) -> list[tuple[str, relax.Var]]:
    return [
        (name, var)
        for name, function in functions.items()
        for var in function.params
        if not has_one_library(var.ty)
    ]


def interface_of(library: FactoryModule) -> Interface:
    """Interface of `main` in a library: flat tensors."""
    names = [info.name for info in library.metadata.inputs]
    return Interface(names, [None for _ in names], tensors(len(library.metadata.outputs)))


def load_exec(bytecode: bytes | bytearray, lib: Any) -> SavedExecutable:
    """Create an executable from saved code and a loaded library; LoadError for other bytes."""
    code = bytes(bytecode)
    begin = len(_MAGIC) + 8
    end = begin + int.from_bytes(code[len(_MAGIC) : begin], "little")
    if not code.startswith(_MAGIC) or end > len(code):
        raise LoadError("the code of an executable is what Executable.save() returned first")
    try:
        header = json.loads(code[begin:end])
        metadata = Metadata.from_json(header["metadata"]) if "metadata" in header else None
        interfaces = _interfaces(header, 1 if metadata is None else len(metadata.outputs))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(f"the code of an executable is damaged: {error}") from error
    if metadata is None:
        return SavedExecutable(lib, interfaces)
    library = FactoryModule(_runnable(lib), metadata, load_param_dict(code[end:]))
    return SavedExecutable(library, interfaces)


def _interfaces(header: Mapping[str, Any], outputs: int) -> dict[str, Interface]:
    """Interface of each function; older code only has the parameter names."""
    if "interfaces" in header:
        found = header["interfaces"].items()
        return {str(name): Interface.from_json(each) for name, each in found}
    result = tensors(outputs)
    return {
        str(name): Interface([*map(str, names)], [None for _ in names], result)
        for name, names in header["parameters"].items()
    }


def _runnable(lib: Any) -> Any:
    """Link a library that contains object code, so that it can run."""
    if any(each.kind == "static_library" for each in lib.imports):
        return tvm.runtime.Executable(lib).jit()
    return lib
