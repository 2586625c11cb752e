"""`tvm.meta_schedule` with its `relay_integration`, which went with Relay."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .patches import Patches


def _relay_integration(name: str) -> Any:
    if name != "relay_integration":
        raise AttributeError(f"module 'tvm.meta_schedule' has no attribute {name!r}")
    return importlib.import_module("tvm.meta_schedule.relay_integration")


def patch(patches: Patches) -> None:
    """Let it have that module."""
    patches.set(sys.modules["tvm.s_tir.meta_schedule"], "__getattr__", _relay_integration)
