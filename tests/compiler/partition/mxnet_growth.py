"""How MXNet forms subgraphs, written down plainly: the yardstick of the regions' tests.

Its search for ancestors is exact here; MXNet's gives up after as many visits as there are nodes.
"""

from __future__ import annotations

from collections import deque

Predecessors = list[list[int]]


def mxnet_groups(predecessors: Predecessors, selected: list[bool]) -> list[list[int]]:
    """Groups of selected nodes, in the order of their first nodes; they may feed each other."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for node, sources in enumerate(predecessors):
        for source in dict.fromkeys(sources):
            readers[source].append(node)
    label: list[int | None] = [None] * len(predecessors)
    groups = []
    for seed, wanted in enumerate(selected):
        if wanted and label[seed] is None:
            members = _without_cycle(seed, predecessors, readers, selected, label)
            for member in members:
                label[member] = len(groups)
            groups.append(sorted(members))
    return groups


def _without_cycle(
    seed: int,
    predecessors: Predecessors,
    readers: Predecessors,
    selected: list[bool],
    label: list[int | None],
) -> set[int]:
    excluded: set[int] = set()
    while True:
        members, outside = {seed}, set()
        queue = deque([seed])
        while queue:
            node = queue.popleft()
            for other in (*predecessors[node], *readers[node]):
                if other in members or label[other] is not None:
                    continue
                if selected[other] and other not in excluded:
                    members.add(other)
                    queue.append(other)
                else:
                    outside.add(other)
        outside -= members
        candidates = []
        for node in outside:
            feeds = members & set(readers[node])
            fed = members & set(predecessors[node])
            if feeds and fed:
                candidates.append(max(feeds | fed))
            elif fed:
                for last in outside:
                    into = members & set(readers[last])
                    if last > node and into and _leads(node, last, predecessors, members):
                        candidates.append(max(into | fed))
        if not candidates:
            return members
        before = len(excluded)
        excluded.add(max(candidates))
        if len(excluded) == before:
            return {seed}


def _leads(start: int, end: int, predecessors: Predecessors, members: set[int]) -> bool:
    seen, stack = {end}, [end]
    while stack:
        node = stack.pop()
        if node == start:
            return True
        for source in predecessors[node]:
            if source not in members and source not in seen:
                seen.add(source)
                stack.append(source)
    return False
