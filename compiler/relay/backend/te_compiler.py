"""`relay.backend.te_compiler`: `get().clear()`, which scripts call between builds."""

from __future__ import annotations


class TECompiler:
    """Stub of TVM's operator cache: each build lowers its operators again."""

    def clear(self) -> None:
        """Do nothing: no lowered operators are cached."""


def get() -> TECompiler:
    """Return the compiler of this process."""
    return TECompiler()
