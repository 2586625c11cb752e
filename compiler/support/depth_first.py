"""A depth-first walk over the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

Node = TypeVar("Node")


def depth_first(
    roots: Iterable[Node],
    below: Callable[[Node], Iterable[Node]],
    key: Callable[[Node], Hashable] | None = None,
) -> Iterator[Node]:
    """Yield each node that `roots` lead to once, after the nodes `below` it, left to right.

    `below` is asked when a node is met first, and its nodes are taken one by one. On a cycle, the
    node that is met first comes last. `key`: nodes with the same one are one; by default equal
    ones.
    """
    met: set[Hashable] = set()
    path: list[tuple[Any, Iterator[Node]]] = [(None, iter(roots))]
    while path:
        node, rest = path[-1]
        for each in rest:
            name = each if key is None else key(each)
            if name not in met:
                met.add(name)
                path.append((each, iter(below(each))))
                break
        else:
            path.pop()
            if path:
                yield node
