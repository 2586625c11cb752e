"""The parts of statements, expressions and functions."""

from __future__ import annotations

from typing import Any

import tvm_ffi


def nodes_of(root: Any, kind: Any, order: str = "post") -> list[Any]:
    """Nodes of a class, or of one of several, inside `root` and itself, parts before the whole.

    With the order "pre", the whole before its parts.
    """
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, found.append), order=order)
    return found
