"""Progress of a build, for those who show it: the running step, and kernels done of all.

    with compiler.on_progress(print):
        library = relay.build(mod, "llvm", params=params)

The logger "baton.lowering" has the time of each step at level DEBUG.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import NamedTuple

from .scoped_context import scoped_value


class Progress(NamedTuple):
    """Where a build is."""

    step: str  # such as "schedule kernels"
    done: int = 0  # done, total: kernels of this step; 0 of 0 where none are counted
    total: int = 0

    def __str__(self) -> str:
        return f"{self.step} {self.done}/{self.total} kernels" if self.total else self.step


_callback: ContextVar[Callable[[Progress], object] | None] = ContextVar("progress", default=None)


def on_progress(callback: Callable[[Progress], object]) -> AbstractContextManager[object]:
    """Call `callback` with a `Progress` from builds of this thread within the body.

    It is called at the beginning of each step, and after each kernel of steps that schedule or
    compile kernels. Its errors end the build. Contexts nest; the innermost is called.
    """
    return scoped_value(_callback, callback)


def report_progress(step: str, done: int = 0, total: int = 0) -> None:
    """Tell whoever shows the progress of this thread's build."""
    callback = _callback.get()
    if callback is not None:
        callback(Progress(step, done, total))
