"""Switching the old names on and off in this process."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import tvm
import tvm.contrib
import tvm.runtime

from ..errors import ForeignLibraryError, InputError
from ..support import strictness
from . import (
    arithmetic,
    attr_aliases,
    collage,
    default_inputs,
    diagnostics,
    ffi,
    function_metadata,
    generic_func,
    intrinsic_names,
    llvm_source,
    nd,
    pass_context,
    relax_names,
    rpc,
    structural,
    targets,
    te_names,
    tir,
    tvm_script,
    v0_6,
    vm,
)
from .import_hook import (
    Finder,
    forget,
    today,
    use_names_of_06,
    use_names_of_mxnet,
    uses_names_of_06,
)
from .module_map import ABSENT, EXTENDED, GONE
from .name_completion import complete_loaded
from .patches import Patches
from .removed_modules import AbsentModule

_CHANGING: Any = (
    *(relax_names, structural, arithmetic, te_names, tvm_script),
    *(default_inputs, vm, rpc, tir, intrinsic_names, diagnostics, llvm_source, ffi),
)
_NAMING: Any = (
    *(nd, targets, pass_context, relax_names, attr_aliases, tir, tvm_script, te_names),
    *(collage, vm, generic_func, function_metadata),
)
_names, _changes = Patches(), Patches()
_finder = Finder(_names)


def is_installed() -> bool:
    """Whether the old names are on."""
    return _finder in sys.meta_path


def install(everything: bool = False, era: str = "0.19") -> None:
    """Make the modules, functions and spellings of TVM 0.18 work in this process.

    Old modules (`tvm.relay`, `tvm.autotvm`, `tvm.auto_scheduler`, `tvm.nd`, `tvm.tir`,
    `tvm.contrib.graph_executor`...) become importable, `tvm.target.Target` reads target strings
    with options, and `tvm.transform.PassContext` takes old configuration keys: those with a
    name of today under that name, the others are ignored with a note on the logger
    "baton.legacy". Nothing of the installed TVM is written to. Calling it twice is calling it
    once.

    Parameters
    ----------
    everything : bool
        Whether TVM's own classes change too: arithmetic on Relax expressions makes Relay's
        operators, types and expressions compare as Relay's did, dtypes are text. Other users of
        TVM in the process see that, so it is for programs that are old scripts; a library takes
        `installed()` around what needs it.
    era : str
        The version of TVM that the script was written for, "0.6" to "0.19". What only "0.6" and
        older had (`tvm.placeholder`, `relay.Module`, `topi`) is on for such a script alone; it
        goes with `everything`.

    Raises
    ------
    InputError
        There is no such era.
    LegacyImportError
        On import of a module that nothing stands for; it says what to use instead.
    """
    is_06 = version_of(era) <= (0, 6)
    if not is_installed():
        _install_names()
    use_names_of_06(is_06)
    if everything and not _changes:
        for module in _CHANGING:
            module.change(_changes)
        if is_06:
            v0_6.change(_changes)
        te_names.register_blas()
        _deepen_stack()


def version_of(era: str) -> tuple[int, int]:
    """ "0.6" or "v0.6.1" as (0, 6). Raises InputError: it is not a version of TVM with Relay."""
    found = re.fullmatch(r"v?0\.(\d+)(\.\w+)*", era)
    if found is None or not 5 <= int(found[1]) <= 19:
        raise InputError(f"era {era!r}: give a version of TVM from 0.6 to 0.19")
    return 0, int(found[1])


def era() -> str | None:
    """The version of TVM whose names are on; None without old names."""
    if not is_installed():
        return None
    return "0.6" if uses_names_of_06() else "0.19"


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """All of `install(everything=True)`, and at the end the process as it was before.

    It holds for all threads. Modules that were imported inside keep working.
    """
    names, changes = is_installed(), bool(_changes)
    install(everything=True)
    try:
        yield
    finally:
        if not changes:
            _changes.undo()
            _restore_stack()
        if not names:
            uninstall()


def _install_names() -> None:
    sys.meta_path.insert(0, _finder)
    for name in EXTENDED:
        if name in sys.modules:
            _finder.extend(name)
    for package in (tvm, tvm.contrib, tvm.runtime, tvm.target, tvm.topi):
        _names.set(package, "__getattr__", _old_submodules(package))
    for module in _NAMING:
        module.patch(_names)
    for package in (tvm.ir, tvm.driver, tvm.script, tvm.te):  # whose names are patched before
        _names.set(package, "__getattr__", _old_submodules(package))
    _rename_functions()
    _rename_loggers()
    complete_loaded(_names)
    _names.set(strictness, "_forgiving", True)


def uninstall() -> None:
    """Take back what `install` did; modules that a script imported keep working."""
    if not is_installed():
        return
    sys.meta_path.remove(_finder)
    forget()
    use_names_of_06(False)
    use_names_of_mxnet(False)
    _changes.undo()
    _names.undo()
    _restore_stack()


def _old_submodules(package: ModuleType) -> Any:
    """A `__getattr__` for a package of TVM that imports an old submodule when it is named."""
    before = vars(package).get("__getattr__")

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            full = f"{package.__name__}.{name}"
            if today(full) is not None or full in EXTENDED or full in ABSENT:
                return importlib.import_module(full)
            if full in GONE:
                return AbsentModule(full, GONE[full])
            if before is not None:
                return before(name)
            if package is tvm.contrib and importlib.util.find_spec(full) is not None:
                return importlib.import_module(full)  # old TVM had imported all of them
            if package is tvm:
                return _of_06(name)
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")

    return __getattr__


def _of_06(name: str) -> Any:
    """A name of `tvm` that TVM 0.7 moved; only scripts of TVM 0.6 have it."""
    found = v0_6.find(name)
    if not uses_names_of_06():
        raise AttributeError(
            f"tvm.{name} is a name of TVM 0.6: run the script with `baton run --era 0.6`"
        )
    return found


def _rename_functions() -> None:
    """Functions of the top level that have another name or another form today."""
    for old, value in {
        "TVMError": RuntimeError,
        "context": _device,
        "device": _device,
        "register_func": ffi.register_func,
    }.items():
        _names.set(tvm, old, value)
    for old in ("context", "device"):
        _names.set(tvm.runtime, old, _device)
    _names.set(tvm.runtime, "enabled", _enabled)
    _names.set(tvm.runtime, "load_module", load_module)
    _names.set(tvm.runtime.module, "load_module", load_module)


def _rename_loggers() -> None:
    """Let levels and handlers of TVM's loggers hold for Baton's loggers of the same parts."""
    for name in ("autotvm", "auto_scheduler"):
        old, new = logging.getLogger(name), logging.getLogger(f"baton.{name}")
        _names.set(old, "parent", new.parent)
        _names.set(new, "parent", old)


_new_device = tvm.device
_tvm_load_module = tvm.runtime.load_module
_DEVICE_OF_KIND = {
    **{"llvm": "cpu", "c": "cpu", "nvptx": "cuda", "cl": "opencl", "mtl": "metal"},
    # FPGAs, which no machine has for TVM any more: devices that do not exist.
    **dict.fromkeys(("aocl", "aocl_sw_emu", "sdaccel"), "ext_dev"),
}


def _device(dev_type: Any, dev_id: int = 0) -> Any:
    """A device by its type, or by a target's text: "llvm -mcpu=core-avx2" is a CPU."""
    if isinstance(dev_type, tvm.target.Target):
        dev_type = str(dev_type.kind.name)
    if isinstance(dev_type, str):
        is_json = dev_type.startswith("{")  # what str(target) is today
        kind = json.loads(dev_type)["kind"] if is_json else dev_type.split()[0]
        dev_type = _DEVICE_OF_KIND.get(kind, "cuda" if kind == "gpu" else kind)
    return _new_device(dev_type, dev_id)


_tvm_enabled = tvm.runtime.enabled


def _enabled(target: str) -> bool:
    """Whether this TVM has a target's runtime; it has none of the kinds that are gone."""
    if target == "c":  # whose code runs on the CPU
        target = "cpu"
    return _DEVICE_OF_KIND.get(target) != "ext_dev" and bool(_tvm_enabled(target))


def load_module(path: Any, fmt: str = "") -> Any:
    """A library that was exported by `lib.export_library`, or any other of TVM's."""
    from ..runtime.load import load_module as load_library

    try:
        return load_library(path)
    except ForeignLibraryError:
        return _tvm_load_module(path)


_STACK_BYTES = 96 * 2**20  # below the 128 MB that Linux leaves free under a stack
_stack_before: tuple[int, int] | None = None


def _deepen_stack() -> None:
    """Let the stack of the main thread grow further, where the system allows it.

    TVM frees an expression by freeing its operands, one call in the other: chains of tens of
    thousands of operators need more than the usual 8 MB and end the process without a word. Linux
    lets the stack of the main thread grow until the limit that holds at that time.
    """
    global _stack_before
    if not sys.platform.startswith("linux"):
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    unlimited = resource.RLIM_INFINITY
    wanted = _STACK_BYTES if hard == unlimited else min(_STACK_BYTES, hard)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        _stack_before = (soft, hard)


def _restore_stack() -> None:
    """Put the limit back."""
    global _stack_before
    if _stack_before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_STACK, _stack_before)
        _stack_before = None
