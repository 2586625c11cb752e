"""In which scope each node of a shared expression graph is bound.

A saved body is a graph in which a node may be used from several branches. It is evaluated once:
in the innermost scope that all its uses can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Scope:
    """A body: of the function, of a branch, of a let. `nodes` are in the order of evaluation."""

    outer: Scope | None
    depth: int
    nodes: list[int] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(self, self.depth + 1)


def common(left: Scope, right: Scope) -> Scope:
    """The innermost scope that both see."""
    while left is not right:
        if left.depth >= right.depth:
            assert left.outer is not None
            left = left.outer
        else:
            assert right.outer is not None
            right = right.outer
    return left


def order(root: int, uses: Callable[[int], Iterable[int]]) -> list[int]:
    """All nodes below `root`, what is used before what uses it. A circle raises ValueError."""
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
