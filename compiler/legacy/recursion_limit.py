"""Room for deep expressions.

TVM frees an expression by freeing its operands, one call in the other: tens of thousands of
operators in a chain need more than the usual stack of 8 MB and end the process without a word.
Relay freed such chains in a loop. Linux lets the stack of the main thread grow until the limit that
holds at that time.
"""

from __future__ import annotations

import sys

_BYTES = 96 * 2**20  # below the 128 MB that Linux leaves free under a stack
_before: tuple[int, int] | None = None


def deepen() -> None:
    """Let the stack of the main thread grow further, where the system allows it."""
    global _before
    if not sys.platform.startswith("linux"):
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    unlimited = resource.RLIM_INFINITY
    wanted = _BYTES if hard == unlimited else min(_BYTES, hard)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
        _before = (soft, hard)


def restore() -> None:
    """Put the limit back."""
    global _before
    if _before is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_STACK, _before)
        _before = None
