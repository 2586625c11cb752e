"""Blocks of TVM 0.8 to 0.10 in TVMScript, rewritten to today's before the text is parsed.

    with tir.block([n, tir.reduce_axis(0, m)], "B") as [vi, vk]:
        tir.bind(vi, i)

is `with T.block("B"): vi = T.axis.spatial(n, i); vk = T.axis.reduce((0, m), k)`, and a `T.init()`
below loops of its block comes before them.
"""

from __future__ import annotations

import ast
from typing import Any

_AXES = {"reduce_axis": "reduce", "scan_axis": "scan", "opaque_axis": "opaque", "range": "spatial"}


def _called(node: ast.AST) -> str:
    """Last name of what a call calls: "block" of `T.block(...)`; "" for other nodes."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.attr if is_call else ""  # type: ignore[attr-defined]


def _bound(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Variable and value of `T.bind(v, value)`."""
    if isinstance(statement, ast.Expr) and _called(statement.value) == "bind":
        args = statement.value.args  # type: ignore[attr-defined]
        if len(args) == 2 and isinstance(args[0], ast.Name):
            return args[0].id, args[1]
    return None


class OldBlocks(ast.NodeTransformer):
    """Rewrites the blocks of a function; positions are those of the old text."""

    def __init__(self) -> None:
        self._loops: list[str] = []

    def visit_For(self, node: ast.For) -> ast.AST:
        targets = getattr(node.target, "elts", [node.target])
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        self._loops += names
        self.generic_visit(node)
        del self._loops[len(self._loops) - len(names) :]
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        loops, call = self._loops, node.items[0].context_expr
        if _called(call) not in ("block", "sblock"):
            return self.generic_visit(node)
        if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):  # type: ignore[attr-defined]
            self._to_axes(node, call)
        self._loops = []
        self.generic_visit(node)
        self._loops = loops
        node.body = [each for statement in node.body for each in _with_inits_first(statement)]
        return node

    def _to_axes(self, node: ast.With, call: Any) -> None:
        domains, dialect = call.args[0].elts, call.func.value
        variables = node.items[0].optional_vars
        names = getattr(variables, "elts", [variables] if variables else [])
        bindings = dict(filter(None, map(_bound, node.body)))
        loops = self._loops[len(self._loops) - len(names) :]
        axes: list[ast.stmt] = []
        for place, (name, domain) in enumerate(zip(names, domains)):
            default = ast.Name(loops[place], ast.Load()) if len(loops) == len(names) else domain
            kind, args = _AXES.get(_called(domain)), getattr(domain, "args", [])
            if kind is not None:
                domain = ast.Tuple(list(args), ast.Load()) if len(args) > 1 else args[0]
            axis = ast.Attribute(ast.Attribute(dialect, "axis", ast.Load()), kind or "spatial")
            axis.ctx = ast.Load()
            value = ast.Call(axis, [domain, bindings.get(name.id, default)], [])
            axes.append(ast.Assign([ast.Name(name.id, ast.Store())], value))
        node.body = [*axes, *(each for each in node.body if _bound(each) is None)]
        node.items[0].optional_vars = None
        call.args = call.args[1:]
        for axis_statement in axes:
            ast.copy_location(axis_statement, node)
            ast.fix_missing_locations(axis_statement)


class _Inits(ast.NodeTransformer):
    """Takes `with T.init():` out of loops."""

    def __init__(self) -> None:
        self.found: list[ast.stmt] = []

    def visit_With(self, node: ast.With) -> ast.AST:
        called = _called(node.items[0].context_expr)
        if called == "init":
            self.found.append(node)
            return ast.copy_location(ast.Pass(), node)
        return node if called in ("block", "sblock") else self.generic_visit(node)


def _with_inits_first(statement: ast.stmt) -> list[ast.stmt]:
    if not isinstance(statement, ast.For):
        return [statement]
    inits = _Inits()
    inits.visit(statement)
    return [*inits.found, statement]
