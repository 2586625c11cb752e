"""`tvm.contrib.debugger` as scripts know it: times and results of every kernel of a library."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "debug_runtime":  # what debug_executor was called before TVM 0.8
        from . import debug_executor

        return debug_executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
