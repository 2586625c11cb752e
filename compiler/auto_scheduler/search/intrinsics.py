"""Imports TVM's tensor intrinsics of one target alone.

`tvm.s_tir.tensor_intrin` parses those of every device, several hundred TVMScript functions, which
takes minutes inside a deep call stack; MetaSchedule imports it for every task.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

from tvm.target import Target

_PACKAGE = "tvm.s_tir.tensor_intrin"
_OF_KIND = {"cuda": "cuda", "nvptx": "cuda", "rocm": "rocm", "hexagon": "hexagon"}
_OF_CPU = {"arm_cpu": "arm_cpu", "riscv_cpu": "riscv_cpu"}


def import_intrinsics(target: Target) -> None:
    """Register the intrinsics that kernels for a target may use.

    The package itself stays importable: a module of it is loaded when somebody asks for it.
    """
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = _lazy_package()
    kind = str(target.kind.name)
    if kind == "llvm":
        part = next((_OF_CPU[key] for key in map(str, target.keys) if key in _OF_CPU), "x86")
    elif kind in _OF_KIND:
        part = _OF_KIND[kind]
    else:
        return
    importlib.import_module(f"{_PACKAGE}.{part}")


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
