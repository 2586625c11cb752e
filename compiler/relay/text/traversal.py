"""Traversal of syntax trees without evaluation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import syntax
from .values import Environment


@contextmanager
def deep() -> Iterator[None]:
    """Raise the recursion limit for deeply nested expressions and calls."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def is_straight(function: syntax.Function) -> bool:
    """Whether a body contains only operator calls: no conditions, functions, data or references."""
    stack: list[Any] = [function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, _BRANCHING):
            return False
        stack += children(node)
    return True


_BRANCHING = (
    *(syntax.If, syntax.Function, syntax.Global, syntax.Match, syntax.Constructor),
    *(syntax.RefCreate, syntax.RefRead, syntax.RefWrite),
)


def free_variables(block: syntax.Block) -> list[syntax.Var]:
    """Variables declared by `free_var`, in order of use."""
    bound = {var for var, _ in block.bindings}
    found: dict[syntax.Var, None] = {}
    stack: list[Any] = [block]
    while stack:
        node = stack.pop()
        if isinstance(node, syntax.Var):
            if node not in bound and node.number is None:
                found[node] = None
            continue
        if isinstance(node, syntax.Function):
            bound.update(node.parameters)
        stack += reversed(list(children(node)))
    return list(found)


def captured(function: syntax.Function, env: Environment) -> list[tuple[syntax.Var, Any]]:
    """Variables captured by a function, with their values."""
    found: dict[syntax.Var, Any] = {}
    seen: set[syntax.Var] = set()
    stack: list[Any] = [function]
    while stack:
        node = stack.pop()
        if not isinstance(node, syntax.Var):
            stack += children(node)
        elif node not in seen:
            seen.add(node)
            value = env.lookup(node)
            if value is not None:
                found[node] = value
            elif node.definition is not None:
                stack.append(node.definition)
    return list(found.items())


def children(node: Any) -> list[Any]:
    if isinstance(node, syntax.Block):
        return [value for _, value in node.bindings] + [node.result]
    if isinstance(node, syntax.Call):
        return [node.function, *node.arguments]
    if isinstance(node, syntax.If):
        return [node.condition, node.then, node.otherwise]
    if isinstance(node, syntax.Function):
        return [node.body]
    if isinstance(node, syntax.Tuple):
        return list(node.fields)
    if isinstance(node, syntax.Field):
        return [node.tuple]
    if isinstance(node, syntax.Match):
        return [node.value, *(clause.body for clause in node.clauses)]
    if isinstance(node, syntax.RefCreate):
        return [node.value]
    if isinstance(node, syntax.RefRead):
        return [node.ref]
    if isinstance(node, syntax.RefWrite):
        return [node.ref, node.value]
    return []


def calls_itself(item: tuple[str, syntax.Function]) -> bool:
    """Whether a function's body mentions the function; mutual recursion is found by evaluation."""
    name, function = item
    stack: list[Any] = [function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, syntax.Global) and node.name == name:
            return True
        stack += children(node)
    return False
