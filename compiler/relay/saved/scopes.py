"""Scope assignment for the nodes of a shared expression graph.

Nodes of a saved body can be used in several branches. Each is evaluated once, in the innermost
scope that is visible to all its uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Scope:
    """Body of a function, branch or let. `nodes` are in evaluation order."""

    outer: Scope | None
    depth: int
    nodes: list[int] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(self, self.depth + 1)


def common(left: Scope, right: Scope) -> Scope:
    """Innermost common scope."""
    while left is not right:
        if left.depth >= right.depth:
            assert left.outer is not None
            left = left.outer
        else:
            assert right.outer is not None
            right = right.outer
    return left


def order(root: int, uses: Callable[[int], Iterable[int]]) -> list[int]:
    """Topological order of the nodes below `root`, operands first. ValueError on a cycle."""
    done: dict[int, bool] = {}
    result: list[int] = []
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            done[node] = True
            result.append(node)
        elif node not in done:
            done[node] = False
            stack.append((node, True))
            below = list(uses(node))
            if any(done.get(each) is False for each in below):
                raise ValueError(f"node {node} is part of a circle")
            stack.extend((each, False) for each in reversed(below) if each not in done)
        elif done[node] is False:
            continue
    return result
