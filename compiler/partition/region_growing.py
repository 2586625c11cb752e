"""Growing a set of connected nodes from a first one, and finding what a path comes back to.

A path that leaves a set and comes back to it would make the set, contracted to one node, feed
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

UNMARKED = -2
"""Mark of a node that no subgraph may take."""
ANY = -1
"""Mark of a node that may join any subgraph."""


def find_root(parent: list[int] | dict[int, int], node: int) -> int:
    """The root of a node in a forest of parents; paths are halved on the way."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def readers_of(predecessors: Sequence[Iterable[int]]) -> list[list[int]]:
    """For each node those that read it, ascending, each once."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for node, sources in enumerate(predecessors):
        for source in sources:
            found = readers[source]
            if not found or found[-1] != node:
                found.append(node)
    return readers


def grow(
    seed: int,
    predecessors: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
    marks: Sequence[int],
    is_open: Callable[[int], bool],
) -> list[int]:
    """Marked nodes that hang together with a first one, breadth-first.

    * `predecessors`, `readers`: neighbors of each node.
    * `marks`: at most one number other than `ANY` comes together, the one met first.
    * `is_open`: whether a marked node may be taken.
    """
    number = marks[seed]
    members, seen = [seed], {seed}
    for node in members:
        for near in (predecessors[node], readers[node]):
            for other in near:
                mark = marks[other]
                if other in seen or mark == UNMARKED or not is_open(other):
                    continue
                if mark in (ANY, number) or number == ANY:
                    number = mark if number == ANY else number
                    seen.add(other)
                    members.append(other)
    return members


def last_return(readers: Sequence[Sequence[int]], members: Collection[int]) -> tuple[int, int]:
    """The member to leave out first, because a path that leaves the members comes back to it.

    As in MXNet it is the last one that such a path comes back to, where of the paths that begin at
    an outside node which both reads and feeds members only the shortest count. The readers of a
    node are larger than it; `members` has a fast `in`. Returns the member, -1 if no path comes
    back, and the number of edges looked at.
    """
    last = max(members)
    found, cost = -1, 0
    around: set[int] = set()
    for member in members:
        cost += len(readers[member])
        around.update(node for node in readers[member] if node < last and node not in members)
    pending: list[int] = []
    for node in around:
        cost += len(readers[node])
        fed = max((reader for reader in readers[node] if reader in members), default=-1)
        found = max(found, fed)
        if fed < 0:
            pending.append(node)
    seen = set(pending)
    while pending:
        node = pending.pop()
        cost += len(readers[node])
        for reader in readers[node]:
            if reader in members:
                found = max(found, reader)
            elif reader < last and reader not in seen:
                seen.add(reader)
                pending.append(reader)
    return found, cost
