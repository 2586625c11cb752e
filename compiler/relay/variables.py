"""Traversal of expression nodes and their variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import relax

from .adt import Match, variables_of
from .expr import as_expr, is_written_let
from .nested_expressions import handle, nested, operands, post_order, value_of


def _inside(node: relax.Expr) -> list[relax.Expr]:
    """Bodies nested in a node: of a function, or of the branches of a condition."""
    if isinstance(node, tvm.ir.BaseFunc):
        return [nested(node) if isinstance(node, relax.Function) else node.body]
    if isinstance(node, relax.If):
        return [node.true_branch, node.false_branch]
    if isinstance(node, Match):
        return [clause.rhs for clause in node.clauses]
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


def _operands_and_lets(node: relax.Expr) -> list[relax.Expr]:
    """Operands of a node; variables, values and result of lets, also of unused ones."""
    if not is_written_let(node):
        return operands(node)
    bindings = [block.bindings[0] for block in node.blocks]
    return [*(part for each in bindings for part in (each.var, each.value)), node.body]


def _in_order(expr: Any, lets: bool = False) -> Iterator[relax.Expr]:
    """Yield nodes in the order of Relay's visitors: bound variables precede the bodies.

    `lets`: keep what `relay.Let` made outside of Relax functions, instead of substituting values.
    """
    root = expr if lets and is_written_let(expr) else body_of(as_expr(expr))
    for node in post_order(root, _operands_and_lets if lets else operands):
        if isinstance(node, tvm.ir.BaseFunc):
            yield from node.params
        if isinstance(node, Match):
            for clause in node.clauses:
                yield from variables_of(clause.lhs)
                yield from _in_order(clause.rhs, lets)
        elif not (lets and is_written_let(node)):
            written = getattr(node, "written", None) if lets else None
            for body in _inside(node) if written is None else [written]:
                yield from _in_order(body, lets)
        if isinstance(node, relax.SeqExpr):
            yield from _bound_by(node)
        if isinstance(node, tvm.ir.Call):
            yield node.op
        yield node


def post_order_visit(expr: Any, fvisit: Callable[[relax.Expr], Any]) -> None:
    """Call `fvisit` on every node once, operands first, left to right, operators included."""
    for node in in_order(expr):
        fvisit(node)


def in_order(expr: Any, lets: bool = False) -> list[relax.Expr]:
    """Nodes as `_in_order` yields them, each once."""
    return list({handle(node): node for node in _in_order(expr, lets)}.values())


def _variables(expr: Any, lets: bool = False) -> list[relax.Var]:
    return [
        node
        for node in in_order(expr, lets)
        if isinstance(node, relax.Var) and not isinstance(node, tvm.ir.GlobalVar)
    ]


def global_vars(expr: Any) -> list[tvm.ir.GlobalVar]:
    """Global functions that an expression references, called or not."""
    return [node for node in in_order(expr) if isinstance(node, tvm.ir.GlobalVar)]


def all_vars(expr: Any) -> list[relax.Var]:
    """All variables in evaluation order."""
    return _variables(expr, lets=True)


def bound_vars(expr: Any) -> list[relax.Var]:
    """Variables bound by functions, lets or patterns."""
    bound = {handle(var) for node in in_order(expr, lets=True) for var in _bound_by(node)}
    return [var for var in _variables(expr, lets=True) if handle(var) in bound]


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
