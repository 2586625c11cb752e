"""Traversal of expression nodes and their variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import relax

from .adt import Match, variables_of
from .expr import as_expr
from .nested_expressions import handle, nested, post_order, value_of


def _inside(node: relax.Expr) -> list[relax.Expr]:
    """Bodies nested in a node: of a function, or of the branches of a condition."""
    if isinstance(node, relax.Function):
        return [nested(node)]
    if isinstance(node, tvm.ir.BaseFunc):
        return [body_of(node.body)]
    if isinstance(node, relax.If):
        return [body_of(node.true_branch), body_of(node.false_branch)]
    if isinstance(node, Match):
        return [body_of(clause.rhs) for clause in node.clauses]
    if isinstance(node, relax.Call) and not isinstance(node.op, (tvm.ir.Op, relax.Var)):
        return [node.op]
    if isinstance(node, relax.SeqExpr):
        return [*(each.value for block in node.blocks for each in block.bindings), node.body]
    return []


def body_of(expr: relax.Expr) -> relax.Expr:
    """Result expression of a sequence of bindings; other expressions are returned unchanged."""
    return value_of(expr) if isinstance(expr, relax.SeqExpr) else expr


def nodes(expr: Any) -> Iterator[relax.Expr]:
    """Yield every node once, operands first; inner functions and branches precede their node."""
    for node in post_order(body_of(as_expr(expr))):
        for body in _inside(node):
            yield from nodes(body)
        yield node


def _in_order(expr: Any) -> Iterator[relax.Expr]:
    """Yield nodes in the order of Relay's visitors: bound variables precede the bodies."""
    for node in post_order(body_of(as_expr(expr))):
        if isinstance(node, tvm.ir.BaseFunc):
            yield from node.params
        if isinstance(node, Match):
            for clause in node.clauses:
                yield from variables_of(clause.lhs)
                yield from _in_order(clause.rhs)
        else:
            for body in _inside(node):
                yield from _in_order(body)
        if isinstance(node, relax.SeqExpr):
            yield from _bound_by(node)
        if isinstance(node, tvm.ir.Call):
            yield node.op
        yield node


def post_order_visit(expr: Any, fvisit: Callable[[relax.Expr], Any]) -> None:
    """Call `fvisit` on every node once, operands first, left to right, operators included."""
    seen: set[int] = set()
    for node in _in_order(expr):
        if handle(node) not in seen:
            seen.add(handle(node))
            fvisit(node)


def _variables(expr: Any) -> list[relax.Var]:
    found: list[relax.Expr] = []
    post_order_visit(expr, found.append)
    return [
        node
        for node in found
        if isinstance(node, relax.Var) and not isinstance(node, tvm.ir.GlobalVar)
    ]


def global_vars(expr: Any) -> list[tvm.ir.GlobalVar]:
    """Global functions that an expression references, called or not."""
    found: list[relax.Expr] = []
    post_order_visit(expr, found.append)
    return [node for node in found if isinstance(node, tvm.ir.GlobalVar)]


def all_vars(expr: Any) -> list[relax.Var]:
    """All variables in evaluation order."""
    return _variables(expr)


def bound_vars(expr: Any) -> list[relax.Var]:
    """Variables bound by functions, lets or patterns."""
    bound = {handle(var) for node in nodes(expr) for var in _bound_by(node)}
    return [var for var in _variables(expr) if handle(var) in bound]


def _bound_by(node: relax.Expr) -> list[relax.Var]:
    """Variables that a node binds."""
    if isinstance(node, tvm.ir.BaseFunc):
        return list(node.params)
    if isinstance(node, Match):
        return [var for clause in node.clauses for var in variables_of(clause.lhs)]
    if isinstance(node, relax.SeqExpr):
        return [each.var for block in node.blocks for each in block.bindings]
    return []


def free_vars(expr: Any) -> list[relax.Var]:
    """Free variables of the expression in evaluation order."""
    bound = {handle(var) for var in bound_vars(expr)}
    return [var for var in _variables(expr) if handle(var) not in bound]
