"""`tvm.ir.diagnostics`: renderers of messages, which nothing asks for messages any more.

What is wrong with a program is said by the error that is raised, of `compiler.errors`;
`except tvm.error.DiagnosticError` catches it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm

from ..errors import RelayError, RelaySyntaxError
from .patches import Patches

__all__ = ["DiagnosticRenderer", "get_renderer", "override_renderer"]


TVM_ERROR = tvm.error.DiagnosticError
"""TVM's own, which TVMScript's parser raises."""


def change(patches: Patches) -> None:
    """Let `tvm.error.DiagnosticError` be what is wrong with Relay's programs, too."""
    patches.set(tvm.error, "DiagnosticError", (TVM_ERROR, RelayError, RelaySyntaxError))


class DiagnosticRenderer:
    """A function that shows a context's messages."""

    def __init__(self, render_func: Callable[[Any], None]) -> None:
        self._render = render_func

    def render(self, ctx: Any) -> None:
        """Show them."""
        self._render(ctx)


_default = DiagnosticRenderer(print)
_current = _default


def get_renderer() -> DiagnosticRenderer:
    """The renderer that was set, or one that prints."""
    return _current


def override_renderer(render_func: Callable[[Any], None] | None) -> None:
    """Set the renderer; None takes it back."""
    global _current
    _current = _default if render_func is None else DiagnosticRenderer(render_func)
