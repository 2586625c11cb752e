"""`tvm.contrib.target`: Relay modules in the formats of others; of these, ONNX is left."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..module_map import ABSENT


def __getattr__(name: str) -> ModuleType:
    """A module that is gone: its names refuse when they are used."""
    old = f"tvm.contrib.target.{name}"
    if old not in ABSENT:
        raise AttributeError(f"module 'tvm.contrib.target' has no attribute {name!r}")
    return importlib.import_module(old)
