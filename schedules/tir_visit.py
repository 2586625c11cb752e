"""The parts of statements, expressions and functions."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx


def nodes_of(root: Any, kind: Any, order: str = "post") -> list[Any]:
    """Nodes of one or several classes in `root`, parts before the whole, or after it for "pre"."""
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, found.append), order=order)
    return found


def serial(statement: Any, *kinds: int) -> Any:
    """The statement with its loops of some kinds, parallel ones by default, made serial."""

    def visit(loop: tirx.For) -> tirx.For:
        if loop.kind not in (kinds or (tirx.ForKind.PARALLEL,)):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(statement, (tirx.For, visit))
