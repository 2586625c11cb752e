"""Questions about TIR statements, and copies of them with some parts replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir.analysis import estimate_tir_flops

from schedules.tir_visit import nodes_of


def count_flops(func: tirx.PrimFunc) -> int | None:
    """Operations of one call; None where TVM's analysis can't tell."""
    try:
        return int(estimate_tir_flops(tvm.IRModule({"main": func})))
    except Exception:  # the analysis gives up on data-dependent loops in several ways
        return None


def replace_loop(
    loop: tirx.For, *, loop_var: Any = None, kind: Any = None, body: Any = None
) -> tirx.For:
    """The loop with another variable, kind or body; everything else stays, annotations too."""
    return tirx.For(
        loop.loop_var if loop_var is None else loop_var,
        loop.min,
        loop.extent,
        loop.kind if kind is None else kind,
        loop.body if body is None else body,
        loop.thread_binding,
        loop.annotations,
        loop.step,
    )


def has_attribute(body: tirx.Stmt, key: str) -> bool:
    """Whether a statement, or one inside it, is an attribute of that key."""
    return any(attr.attr_key == key for attr in nodes_of(body, tirx.AttrStmt))


def bound_values(body: tirx.Stmt) -> dict[Any, Any]:
    """Values that statements inside `body` bind, by variable."""
    return {node.var: node.value for node in nodes_of(body, tirx.stmt.Bind)}


def expanded(index: Any, values: Mapping[Any, Any]) -> Any:
    """The index with values in place of these variables, and of those that the values have."""

    def value(var: tirx.Var) -> Any:
        if var in values:
            return tvm_ffi.structural_map(values[var], (tirx.Var, value))
        return var

    return tvm_ffi.structural_map(index, (tirx.Var, value))
