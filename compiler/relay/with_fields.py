"""`relay.expr.CallWithFields` and related functions: copy a node with replaced fields.

None keeps a field; if nothing changes, the node itself is returned. Expressions have no device:
`virtual_device` is accepted and has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ..ir.spans import with_span
from .call import Call
from .expr import Constant, If, Let, Tuple, TupleGetItem, Var


def CallWithFields(
    call: relax.Call,
    op: Any = None,
    args: Sequence[Any] | None = None,
    attrs: Any = None,
    type_args: Sequence[Any] | None = None,
    virtual_device: Any = None,
    span: Any = None,
) -> Any:
    """Copy a call with another operator, arguments, attributes or span."""
    del type_args, virtual_device
    parts = (call.op, call.args, call.attrs)
    new = _replaced(parts, (op, args, attrs))
    return _spanned(call if new is None else Call(*new), call, span)


def TupleWithFields(
    tup: relax.Tuple,
    fields: Sequence[Any] | None = None,
    virtual_device: Any = None,
    span: Any = None,
) -> Any:
    """Copy a tuple with other fields or another span."""
    del virtual_device
    new = _replaced((tup.fields,), (fields,))
    return _spanned(tup if new is None else Tuple(*new), tup, span)


def TupleGetItemWithFields(
    tuple_get_item: relax.TupleGetItem,
    tuple_value: Any = None,
    index: int | None = None,
    virtual_device: Any = None,
    span: Any = None,
) -> Any:
    """Copy a tuple access with another tuple, index or span."""
    del virtual_device
    parts = (tuple_get_item.tuple_value, tuple_get_item.index)
    new = _replaced(parts, (tuple_value, index))
    made = tuple_get_item if new is None else TupleGetItem(*new)
    return _spanned(made, tuple_get_item, span)


def ConstantWithFields(
    constant: tvm.ir.GenericConst, data: Any = None, virtual_device: Any = None, span: Any = None
) -> Any:
    """Copy a constant with another value or span."""
    del virtual_device
    new = _replaced((constant.value,), (data,))
    return _spanned(constant if new is None else Constant(*new), constant, span)


def VarWithFields(
    variable: relax.Var,
    vid: Any = None,
    type_annotation: Any = None,
    virtual_device: Any = None,
    span: Any = None,
) -> Any:
    """Copy a variable with another name, type or span; any change creates a distinct variable."""
    del virtual_device
    name = None if vid is None else str(getattr(vid, "name_hint", vid))
    new = _replaced((str(variable.name), variable.ty), (name, type_annotation))
    return _spanned(variable if new is None else Var(*new), variable, span)


def LetWithFields(
    let: relax.SeqExpr,
    variable: Any = None,
    value: Any = None,
    body: Any = None,
    virtual_device: Any = None,
    span: Any = None,
) -> Any:
    """Copy a let with another variable, value, body or span."""
    del virtual_device
    binding = let.blocks[0].bindings[0]
    parts = (binding.var, binding.value, let.body)
    new = _replaced(parts, (variable, value, body))
    if new is None and span is None:
        return let
    var, value, body = new or parts
    return Let(var, value, body, let.span if span is None else span)


def IfWithFields(
    if_expr: relax.If,
    cond: Any = None,
    true_branch: Any = None,
    false_branch: Any = None,
    virtual_device: Any = None,
    span: Any = None,
) -> Any:
    """Copy an If with another condition, branch or span."""
    del virtual_device
    parts = (if_expr.cond, if_expr.true_branch, if_expr.false_branch)
    new = _replaced(parts, (cond, true_branch, false_branch))
    return _spanned(if_expr if new is None else If(*new), if_expr, span)


def _replaced(parts: Sequence[Any], new: Sequence[Any]) -> list[Any] | None:
    """Merge replacements into the current fields; None if nothing changes."""
    if all(given is None or _is_same(given, part) for given, part in zip(new, parts)):
        return None
    return [part if given is None else given for given, part in zip(new, parts)]


def _is_same(given: Any, part: Any) -> bool:
    if hasattr(part, "__chandle__"):
        return hasattr(given, "__chandle__") and given.__chandle__() == part.__chandle__()
    return bool(given == part)


def _spanned(made: Any, old: Any, span: Any) -> Any:
    span = old.span if span is None else span
    return made if span is None or span.same_as(made.span) else with_span(made, span)
