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


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes below it."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += children(node)


def is_straight(function: syntax.Function) -> bool:
    """Whether a body contains only operator calls: no conditions, functions, data or references."""
    return not any(isinstance(node, _BRANCHING) for node in walk(function.body))


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


_CHILDREN = {
    syntax.Call: ("function", "arguments"),
    syntax.If: ("condition", "then", "otherwise"),
    syntax.Function: ("body",),
    syntax.Tuple: ("fields",),
    syntax.Field: ("tuple",),
    syntax.Match: ("value", "clauses"),
    syntax.Clause: ("body",),
    syntax.RefCreate: ("value",),
    syntax.RefRead: ("ref",),
    syntax.RefWrite: ("ref", "value"),
}
"""Fields of each node class that hold evaluated nodes or lists of them."""


def children(node: Any) -> list[Any]:
    if isinstance(node, syntax.Block):
        return [value for _, value in node.bindings] + [node.result]
    held = [getattr(node, name) for name in _CHILDREN.get(type(node), ())]
    return [each for part in held for each in (part if isinstance(part, list) else [part])]


def calls_itself(item: tuple[str, syntax.Function]) -> bool:
    """Whether a function's body mentions the function; mutual recursion is found by evaluation."""
    name, function = item
    nodes = walk(function.body)
    return any(isinstance(each, syntax.Global) and each.name == name for each in nodes)
