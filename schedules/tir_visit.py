"""The parts of statements, expressions and functions."""

from __future__ import annotations

from typing import Any

import tvm_ffi


def nodes_of(root: Any, kind: Any, order: str = "post") -> list[Any]:
    """Nodes of one or several classes in `root`, parts before the whole, or after it for "pre"."""
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, found.append), order=order)
    return found
