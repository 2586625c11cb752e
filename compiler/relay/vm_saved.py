"""Executables of the virtual machine that are compiled once and kept: code and library.

The library is a TVM module, which `export_library` writes to a file. The code is everything that
running it needs beside it: names of functions, what they take and return, metadata and weights.

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
    compile_plainly,
    covers,
    has_one_library,
    leaf_types,
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
        """A call with these arguments, which are on the device then: to be timed."""
        values = self._interface.ordered(args, kwargs)
        return self._loaded.ready(list(map(as_argument, values)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.ready(*args, **kwargs)()

    def make_kv_cache(self) -> KVCache:
        """An empty cache of keys and values; see `GraphExecutor.make_kv_cache`."""
        return self._scheduled().make_kv_cache()

    def use_kv_cache(self, cache: KVCache) -> None:
        """Have calls, which take the other inputs then, add rows to a cache."""
        self._interface = self._scheduled().use_kv_cache(cache)

    def _scheduled(self) -> Scheduled:
        if not isinstance(self._loaded, Scheduled):
            raise InputError("TVM alone compiled the library, which keeps no cache")
        return self._loaded


class SavedExecutable:
    """What `load_exec` returns; run it with `VirtualMachine(executable, device)`.

    Attributes
    ----------
    library : FactoryModule or tvm.runtime.Module
        What `relay.build` made of `main`; TVM's library where the build driver can't take it, or
        where there are functions that `main` does not call.
    interfaces : dict of str to Interface
        What each function takes and returns.
    """

    def __init__(self, library: Any, interfaces: Mapping[str, Interface]) -> None:
        self.library = library
        self.interfaces = dict(interfaces)

    @property
    def globals(self) -> list[str]:
        """Names of the functions that can be called."""
        return list(self.interfaces)

    @property
    def lib(self) -> Any:
        """TVM's module."""
        is_factory = isinstance(self.library, FactoryModule)
        return self.library.get_lib() if is_factory else self.library

    @property
    def report(self) -> Any:
        """What the build driver did; None for a library that it did not make."""
        return self.library.report if isinstance(self.library, FactoryModule) else None

    @property
    def stats(self) -> str:
        """How many constants and functions the virtual machine's code has."""
        return str(self.lib["stats"]())

    @property
    def bytecode(self) -> str:
        """The virtual machine's code as text."""
        return str(self.lib["as_text"]())

    def get_late_bound_consts(self, byte_limit: int = 64) -> dict[str, Any]:
        """The weights by name, which the library, and a file of it, has no longer then.

        Parameters
        ----------
        byte_limit : int
            Where no weight has more bytes, the library keeps them, and there are none.

        Raises
        ------
        BuildError
            TVM alone made the library, whose constants are part of its code.
        """
        if not isinstance(self.library, FactoryModule):
            raise BuildError("TVM alone compiled the library, whose constants are in its code")
        weights = dict(self.library.get_params())
        if all(_size(tensor) <= byte_limit for tensor in weights.values()):
            return {}
        self.library = self.library.remove_params()
        return weights

    def move_late_bound_consts(self, path: str | os.PathLike[str], byte_limit: int = 64) -> None:
        """Put the weights into a parameter file; see `get_late_bound_consts`."""
        weights = self.get_late_bound_consts(byte_limit)
        pathlib.Path(path).write_bytes(save_param_dict(weights))

    def load_late_bound_consts(self, path: str | os.PathLike[str]) -> None:
        """Take the weights from a file that `move_late_bound_consts` wrote."""
        self.library.load_late_bound_consts(path)

    def load_late_bound_consts_from_map(self, weights: Mapping[str, Any]) -> None:
        """Take the weights that `get_late_bound_consts` returned."""
        self.library.load_late_bound_consts_from_map(weights)

    def function(self, name: str, device: Any) -> SavedFunction:
        """A function as a Python function on `device`."""
        interface = self._interface(name)
        is_factory = isinstance(self.library, FactoryModule)
        library = self.library if is_factory else _runnable(self.library)
        return SavedFunction(load(library, name, interface, device), interface)

    def get_function_params(self, name: str) -> list[str]:
        """Names of a function's parameters."""
        return self._interface(name).names

    def _interface(self, name: str) -> Interface:
        if name not in self.interfaces:
            raise InputError(f"there is no function {name!r}; there are {', '.join(self.globals)}")
        return self.interfaces[name]

    def save(self) -> tuple[bytearray, Any]:
        """The code, and the library; `load_exec` takes both."""
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
    """Bytes of a tensor."""
    return math.prod(map(int, tensor.shape)) * tvm_ffi.dtype(str(tensor.dtype)).itemsize


def compiled(mod: tvm.IRModule, target: Any, params: Mapping[str, Any]) -> SavedExecutable:
    """Compile a module, whose symbols stay open.

    Raises
    ------
    BuildError
        A parameter is of unknown rank.
    """
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
            is_kept = library.metadata.kv_cache is not None  # main has other parameters then
            interface = interface_of(library) if is_kept else Interface.of(mod["main"])
            return SavedExecutable(library, {"main": interface})
    else:
        library = compile_plainly(
            mod, target, "several functions in one library can be called from outside"
        )
    interfaces = {name: Interface.of(mod[name]) for name in functions}
    return SavedExecutable(library.mod, interfaces)


def can_be_kept(mod: tvm.IRModule) -> bool:
    """Whether `main` has one library, and calls all other functions of the module."""
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
    """The interface of `main` of a library: tensors."""
    names = [info.name for info in library.metadata.inputs]
    return Interface(names, [None for _ in names], tensors(len(library.metadata.outputs)))


def load_exec(bytecode: bytes | bytearray, lib: Any) -> SavedExecutable:
    """An executable of what `save` returned, or its library loaded from a file again.

    Raises
    ------
    LoadError
        The bytes are not what `save` returned.
    """
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
    """Of each function; older code has the names of its parameters alone."""
    if "interfaces" in header:
        found = header["interfaces"].items()
        return {str(name): Interface.from_json(each) for name, each in found}
    result = tensors(outputs)
    return {
        str(name): Interface([*map(str, names)], [None for _ in names], result)
        for name, names in header["parameters"].items()
    }


def _runnable(lib: Any) -> Any:
    """A library that can run: one that holds object code is linked first."""
    if any(each.kind == "static_library" for each in lib.imports):
        return tvm.runtime.Executable(lib).jit()
    return lib
