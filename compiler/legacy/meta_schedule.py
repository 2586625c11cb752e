"""`tvm.meta_schedule` with its `relay_integration`, which went with Relay, and 0.10's options."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from tvm.ir.utils import derived_object

from .patches import Patches


@dataclass(frozen=True)
class TuneConfig:
    """How much a search of TVM 0.10 tries; the search decides the rest itself."""

    max_trials_global: int = 0
    num_trials_per_iter: int = 64
    max_trials_per_task: int | None = None
    strategy: str = "evolutionary"
    task_scheduler: str = "gradient"
    logger_config: Any = None


def _relay_integration(name: str) -> Any:
    if name != "relay_integration":
        raise AttributeError(f"module 'tvm.meta_schedule' has no attribute {name!r}")
    return importlib.import_module("tvm.meta_schedule.relay_integration")


def patch(patches: Patches) -> None:
    """Let it have that module, and the class."""
    module = sys.modules["tvm.s_tir.meta_schedule"]
    patches.set(module, "__getattr__", _relay_integration)
    patches.add(module, "TuneConfig", TuneConfig)
    for owner in (module, module.utils):
        patches.add(owner, "derived_object", derived_object)
