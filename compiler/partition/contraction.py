"""Contracting edges of an acyclic graph one by one while it stays acyclic.

The graph is kept with a topological order that is repaired, not recomputed, after every
contraction. Contracting an edge a -> b closes a cycle exactly if a second path leads from a to b,
and every node of such a path lies between a and b in the order; so the search for it runs forward
from a and backward from b at the same time and stays between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_GAP = 1 << 40  # distance of neighboring labels after (re)labelling


class AcyclicContraction:
    """An acyclic graph whose nodes can be merged along edges; ValueError if it has a cycle.

    `predecessors`: nodes with an edge to node i. Repeated entries are harmless.
    """

    def __init__(self, predecessors: Sequence[Iterable[int]]) -> None:
        size = len(predecessors)
        self._predecessors = [list(found) for found in predecessors]
        self._successors: list[list[int]] = [[] for _ in range(size)]
        for node, found in enumerate(self._predecessors):
            for source in found:
                self._successors[source].append(node)
        self._parent = list(range(size))
        # The order is a linked list with integer labels; index `size` is its head and its end.
        self._label = [0] * (size + 1)
        self._before = [size] * (size + 1)
        self._after = [size] * (size + 1)
        self._link_after(size, topological_order(self._predecessors, self._successors))
        self._relabel()

    def find(self, node: int) -> int:
        """The node that `node` has been merged into; itself if none."""
        parent = self._parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def merge(self, source: int, target: int, limit: int) -> tuple[bool, int]:
        """Merge the ends of the edge source -> target unless that could close a cycle.

        The ends may be nodes merged into them. `limit` is the largest number of edges to look at; a
        search that is cut off counts as "closes a cycle": nothing is merged and the graph stays
        acyclic. Returns whether both now are one node, and the edges looked at plus the nodes
        relabelled.
        """
        source, target = self.find(source), self.find(target)
        if source == target:
            return True, 1
        first, last = self._label[source], self._label[target]
        ahead: set[int] = set()  # reached from the source, before the target in the order
        behind: set[int] = set()  # reaches the target, after the source in the order
        forward = [iter(self._successors[source])]
        backward = [iter(self._predecessors[target])]
        find, label = self.find, self._label
        cost = 0
        while cost < limit:
            cost += 2
            node = next(forward[-1], -1)
            if node < 0:
                forward.pop()
                if not forward:
                    moved = sorted(ahead, key=label.__getitem__)
                    return True, cost + self._merge_at_target(source, target, moved)
            else:
                node = find(node)
                if node == target:
                    if len(forward) > 1:
                        return False, cost
                elif label[node] < last and node != source and node not in ahead:
                    if node in behind:
                        return False, cost
                    ahead.add(node)
                    forward.append(iter(self._successors[node]))
            node = next(backward[-1], -1)
            if node < 0:
                backward.pop()
                if not backward:
                    moved = sorted(behind, key=label.__getitem__)
                    return True, cost + self._merge_at_source(source, target, moved)
            else:
                node = find(node)
                if node == source:
                    if len(backward) > 1:
                        return False, cost
                elif label[node] > first and node != target and node not in behind:
                    if node in ahead:
                        return False, cost
                    behind.add(node)
                    backward.append(iter(self._predecessors[node]))
        return False, cost

    def _merge_at_target(self, source: int, target: int, ahead: list[int]) -> int:
        """Put the merged node where the target was, and the source's successors after it."""
        self._unlink([source, *ahead])
        self._link_after(target, ahead)
        return self._label_run(target, ahead) + self._join(source, target, self._label[target])

    def _merge_at_source(self, source: int, target: int, behind: list[int]) -> int:
        """Put the merged node where the source was, and what leads to the target before it."""
        self._unlink([target, *behind])
        anchor = self._before[source]
        self._link_after(anchor, behind)
        return self._label_run(anchor, behind) + self._join(source, target, self._label[source])

    def _join(self, source: int, target: int, label: int) -> int:
        kept, gone = source, target
        if self._size(source) < self._size(target):
            kept, gone = target, source
        # Exactly one of the two is still in the linked list; the kept node takes its place.
        linked = source if self._before[source] >= 0 else target
        if linked != kept:
            before, after = self._before[linked], self._after[linked]
            self._before[kept], self._after[kept] = before, after
            self._after[before] = self._before[after] = kept
        self._label[kept] = label
        self._parent[gone] = kept
        self._successors[kept] += self._successors[gone]
        self._predecessors[kept] += self._predecessors[gone]
        self._successors[gone] = []
        self._predecessors[gone] = []
        return 1

    def _size(self, node: int) -> int:
        return len(self._successors[node]) + len(self._predecessors[node])

    def _unlink(self, nodes: list[int]) -> None:
        for node in nodes:
            before, after = self._before[node], self._after[node]
            self._after[before], self._before[after] = after, before
            self._before[node] = self._after[node] = -1

    def _link_after(self, anchor: int, nodes: list[int]) -> None:
        end = self._after[anchor]
        for node in nodes:
            self._after[anchor], self._before[node] = node, anchor
            anchor = node
        self._after[anchor], self._before[end] = end, anchor

    def _label_run(self, anchor: int, nodes: list[int]) -> int:
        """Label nodes that were linked behind `anchor`; returns how many labels were set."""
        if not nodes:
            return 0
        end = self._after[nodes[-1]]
        label = self._label[anchor]
        limit = label + (len(nodes) + 1) * _GAP if end == len(self._parent) else self._label[end]
        step = (limit - label) // (len(nodes) + 1)
        if step == 0:
            return self._relabel()
        for node in nodes:
            label += step
            self._label[node] = label
        return len(nodes)

    def _relabel(self) -> int:
        end = len(self._parent)
        node, label = self._after[end], 0
        while node != end:
            label += _GAP
            self._label[node] = label
            node = self._after[node]
        return label // _GAP


def topological_order(
    predecessors: Sequence[Sequence[int]], successors: Sequence[Sequence[int]]
) -> list[int]:
    """Nodes after predecessors, the same order for the same lists; ValueError for a cycle."""
    missing = [len(found) for found in predecessors]
    order = [node for node, count in enumerate(missing) if count == 0]
    for node in order:
        for successor in successors[node]:
            missing[successor] -= 1
            if missing[successor] == 0:
                order.append(successor)
    if len(order) != len(missing):
        raise ValueError("the graph has a cycle")
    return order
