"""Questions about TIR statements, and copies of them with some parts replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.s_tir import SBlock
from tvm.s_tir.analysis import estimate_tir_flops

from schedules.tir_visit import nodes_of

_REDUCTION = 2  # tirx.IterVar.CommReduce


def count_flops(func: tirx.PrimFunc) -> int | None:
    """Operations of one call; None where TVM's analysis can't tell."""
    try:
        return int(estimate_tir_flops(tvm.IRModule({"main": func})))
    except Exception:  # the analysis gives up on data-dependent loops in several ways
        return None


def has_reduction(func: tirx.PrimFunc) -> bool:
    """Whether any block of the function reduces."""
    return any(
        any(int(var.iter_type) == _REDUCTION for var in block.iter_vars)
        for block in nodes_of(func.body, SBlock)
    )


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


def marked_loop(statement: tirx.Stmt, mark: str) -> tirx.For | None:
    """The loop after the attributes that a statement begins with, if one of them is the mark."""
    is_marked = False
    while isinstance(statement, tirx.AttrStmt):
        is_marked = is_marked or statement.attr_key == mark
        statement = statement.body
    return statement if is_marked and isinstance(statement, tirx.For) else None


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


def with_parts(statement: tirx.Stmt, change: Callable[[tirx.Stmt], tirx.Stmt]) -> tirx.Stmt:
    """A sequence, attribute, branch or loop with its parts changed; any other statement itself."""
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([change(part) for part in statement.seq])
    if isinstance(statement, tirx.AttrStmt):
        body = change(statement.body)
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, tirx.IfThenElse):
        other = statement.else_case and change(statement.else_case)
        return tirx.IfThenElse(statement.condition, change(statement.then_case), other)
    if isinstance(statement, tirx.For):
        return replace_loop(statement, body=change(statement.body))
    return statement


def without_marks(body: tirx.Stmt, keys: Collection[str]) -> tirx.Stmt:
    """The statement without the attributes of these keys."""

    def drop(attr: tirx.AttrStmt) -> tirx.Stmt:
        return attr.body if attr.attr_key in keys else attr

    return tvm_ffi.structural_map(body, (tirx.AttrStmt, drop))


def with_llvm(body: tirx.Stmt, text: str) -> tirx.Stmt:
    """The statement in a kernel that is compiled together with functions in LLVM's language."""
    zero = tirx.const(0, "int32")
    return tirx.AttrStmt(zero, "pragma_import_llvm", tvm.ir.StringImm(text), body)


def map_primfuncs(
    mod: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]
) -> tvm.IRModule:
    """The module with each of its TIR functions changed."""
    functions = {
        gvar: change(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def op_name(expr: Any) -> str:
    """Name of the operator that an expression calls; "" for any other expression."""
    return str(expr.op.name) if isinstance(expr, Call) and isinstance(expr.op, Op) else ""
