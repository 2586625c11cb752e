"""Switching the old names on and off in this process."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType
from typing import Any

import tvm
import tvm.contrib
import tvm.runtime

from ..errors import ForeignLibraryError
from . import (
    affine,
    arithmetic,
    global_functions,
    nd,
    pass_context,
    relax_names,
    stack,
    structural,
    targets,
    te,
    tir,
    vm,
)
from .finder import Finder, forget, today
from .names import EXTENDED
from .patches import Patches

_patches = Patches()
_finder = Finder(_patches)


def installed() -> bool:
    """Whether the old names are on."""
    return _finder in sys.meta_path


def install() -> None:
    """Make the modules, functions and spellings of TVM 0.18 work in this process.

    Old modules (`tvm.relay`, `tvm.autotvm`, `tvm.auto_scheduler`, `tvm.nd`, `tvm.tir`,
    `tvm.contrib.graph_executor`...) become importable, `tvm.target.Target` reads target strings
    with options, and `tvm.transform.PassContext` takes old configuration keys: those with a
    name of today under that name, the others are ignored with a note on the logger
    "baton.legacy". Nothing of the installed TVM is written to. Calling it twice is calling it
    once.

    Raises
    ------
    LegacyImportError
        On import of a module that nothing stands for; it says what to use instead.
    """
    if installed():
        return
    sys.meta_path.insert(0, _finder)
    for name in EXTENDED:
        if name in sys.modules:
            _finder.extend(name)
    for package in (tvm, tvm.contrib, tvm.runtime, tvm.topi):
        _patches.set(package, "__getattr__", _old_submodules(package))
    nd.patch(_patches)
    targets.patch(_patches)
    pass_context.patch(_patches)
    relax_names.patch(_patches)
    structural.patch(_patches)
    arithmetic.patch(_patches)
    tir.patch(_patches)
    te.patch(_patches)
    global_functions.patch(_patches)
    affine.patch(_patches)
    vm.patch(_patches)
    _rename_functions()
    stack.deepen()


def uninstall() -> None:
    """Take back what `install` did; modules that a script imported keep working."""
    if not installed():
        return
    sys.meta_path.remove(_finder)
    forget()
    _patches.undo()
    stack.restore()


def _old_submodules(package: ModuleType) -> Any:
    """A `__getattr__` for a package of TVM that imports an old submodule when it is named."""
    before = vars(package).get("__getattr__")

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            if today(f"{package.__name__}.{name}") is not None:
                return importlib.import_module(f"{package.__name__}.{name}")
            if before is not None:
                return before(name)
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")

    return __getattr__


def _rename_functions() -> None:
    """Functions of the top level that have another name or another form today."""
    for old, value in {
        "TVMError": RuntimeError,
        "cl": tvm.opencl,
        "context": _device,
        "device": _device,
        "gpu": tvm.cuda,
        "mtl": tvm.metal,
        "register_func": tvm.register_global_func,
    }.items():
        _patches.set(tvm, old, value)
    _patches.set(tvm.runtime, "device", _device)
    _patches.set(tvm.runtime, "load_module", load_module)
    _patches.set(tvm.runtime.module, "load_module", load_module)
    _patches.add(tvm.error, "TVMError", RuntimeError)


_new_device = tvm.device
tvm_load_module = tvm.runtime.load_module
_DEVICE_OF_KIND = {"llvm": "cpu", "c": "cpu", "nvptx": "cuda", "cl": "opencl", "mtl": "metal"}


def _device(dev_type: Any, dev_id: int = 0) -> Any:
    """A device by its type, or by a target's text: "llvm -mcpu=core-avx2" is a CPU."""
    if isinstance(dev_type, tvm.target.Target):
        dev_type = str(dev_type.kind.name)
    if isinstance(dev_type, str):
        is_json = dev_type.startswith("{")  # what str(target) is today
        kind = json.loads(dev_type)["kind"] if is_json else dev_type.split()[0]
        dev_type = _DEVICE_OF_KIND.get(kind, "cuda" if kind == "gpu" else kind)
    return _new_device(dev_type, dev_id)


def load_module(path: Any, fmt: str = "") -> Any:
    """A library that was exported by `lib.export_library`, or any other of TVM's."""
    from ..runtime.load import load_module as load_library

    try:
        return load_library(path)
    except ForeignLibraryError:
        return tvm_load_module(path)
