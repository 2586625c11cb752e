"""Import TVM's tensor intrinsics quickly and on first use only.

`tvm.s_tir.tensor_intrin` parses several hundred TVMScript functions. Each asks for
`inspect.stack()`, which searches all loaded modules for every frame of Python's import system,
whose files it can't place. All that can take a minute.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from typing import Any

from tvm import s_tir
from tvm.target import Target

_NAME = "tensor_intrin"
_PACKAGE = f"{s_tir.__name__}.{_NAME}"
_OF_KIND = {"cuda": "cuda", "nvptx": "cuda", "rocm": "rocm", "hexagon": "hexagon"}
_OF_CPU = {"arm_cpu": "arm_cpu", "riscv_cpu": "riscv_cpu"}
_FROZEN = ("importlib._bootstrap", "importlib._bootstrap_external")


def import_intrinsics(target: Target) -> None:
    """Register the intrinsics that kernels for a target may use."""
    import_on_demand()
    kind = str(target.kind.name)
    if kind == "llvm":
        part = next((_OF_CPU[key] for key in map(str, target.keys) if key in _OF_CPU), "x86")
    elif kind in _OF_KIND:
        part = _OF_KIND[kind]
    else:
        return
    importlib.import_module(f"{_PACKAGE}.{part}")


def import_on_demand() -> None:
    """Import modules of the package lazily, on first use, from now on."""
    inspect.modulesbyfile.update({f"<frozen {name}>": name for name in _FROZEN})
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = _lazy_package()
        setattr(s_tir, _NAME, sys.modules[_PACKAGE])


def _lazy_package() -> types.ModuleType:
    """The package without running its `__init__`."""
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None, "TVM has no tensor intrinsics"
    package = importlib.util.module_from_spec(spec)

    def load(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return importlib.import_module(f"{_PACKAGE}.{name}")

    package.__getattr__ = load  # type: ignore[method-assign]
    return package
