"""Fusion groups of a graph, from operator patterns and post-dominance.

A node is fused into its immediate post-dominator if all nodes between them can be computed in one
loop nest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...support.depth_first import depth_first
from ..op.op_def import BROADCAST, ELEMENTWISE, FUSABLE, INJECTIVE, OPAQUE, REDUCTION, TUPLE


@dataclass(eq=False)
class Node:
    """Graph node; `outputs` lists the consumers, each with the pattern of its edge."""

    pattern: int = OPAQUE
    index: int = -1
    outside: bool = False
    outputs: list[tuple[Node, int]] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """Nodes of one kernel; `root` computes its output."""

    pattern: int
    root: int
    size: int = 1
    has_anchor: bool = False
    parent: Group | None = None

    def find(self) -> Group:
        """Representative of the merged group (union-find)."""
        group = self
        while group.parent is not None:
            group = group.parent
        return group


@dataclass(eq=False)
class _Dominated:
    """Node of the post-dominator tree; `pattern` combines the edges to its parent."""

    node: Node
    parent: _Dominated | None
    depth: int
    pattern: int


def partition(nodes: Sequence[Node], opt_level: int, max_size: int) -> list[Group]:
    """Compute the group of each node, operands first; `opt_level` 0: every node is a group."""
    groups = [
        Group(node.pattern, i, has_anchor=node.pattern == FUSABLE) for i, node in enumerate(nodes)
    ]
    if opt_level == 0:
        return groups
    tree = _post_dominators(nodes)
    for phase in range(3):
        for index in range(len(nodes)):
            _fuse(nodes, groups, tree, index, phase, max_size)
    return groups


def _post_dominators(nodes: Sequence[Node]) -> list[_Dominated]:
    tree: list[_Dominated | None] = [None] * len(nodes)
    for node in reversed(nodes):
        if node.outside:
            tree[node.index] = _Dominated(node, None, 1, OPAQUE)
            continue
        pattern, parent, first = ELEMENTWISE, None, True
        for reader, edge in node.outputs:
            other = tree[reader.index]
            if first:
                parent, first = other, False
            else:
                parent, pattern = _common(parent, other, pattern)
            pattern = max(pattern, edge)
        tree[node.index] = _Dominated(node, parent, parent.depth + 1 if parent else 1, pattern)
    return [each for each in tree if each is not None]


def _common(
    left: _Dominated | None, right: _Dominated | None, pattern: int
) -> tuple[_Dominated | None, int]:
    """Least common post-dominator of two nodes, and the combined pattern of the paths."""
    while left is not right:
        if left is None or right is None:
            return None, pattern
        step_left, step_right = left.depth >= right.depth, right.depth >= left.depth
        if step_left:
            pattern = max(pattern, left.pattern)
        if step_right:
            pattern = max(pattern, right.pattern)
        left = left.parent if step_left else left
        right = right.parent if step_right else right
    return left, pattern


def _fuse(
    nodes: Sequence[Node],
    groups: list[Group],
    tree: list[_Dominated],
    index: int,
    phase: int,
    max_size: int,
) -> None:
    """Fuse a node into its post-dominator if this phase allows it."""
    node, group, dominated = nodes[index], groups[index], tree[index]
    if group.pattern == OPAQUE or dominated.parent is None:
        return
    sink = dominated.parent.node
    target = groups[sink.index]
    between = _between(node, sink)
    if target.find().size + sum(groups[each.index].size for each in [node, *between]) > max_size:
        return

    def allows(condition: Callable[[int, bool], bool]) -> bool:
        return all(condition(groups[each.index].find().pattern, False) for each in between) and (
            condition(target.find().pattern, True)
        )

    def commit() -> None:
        for each in [node, *between]:
            _merge(groups[each.index], target)

    def injective(kind: int, _is_sink: bool) -> bool:
        return kind <= INJECTIVE

    if phase == 2:
        root = target.find()
        if group.pattern > INJECTIVE or root.pattern == TUPLE:
            return
        if target.pattern == TUPLE and root.pattern <= INJECTIVE and allows(injective):
            commit()
        return
    if group.find() is target.find() or target.pattern == TUPLE:
        return
    if group.pattern == FUSABLE:
        now = phase == 0 and dominated.pattern == ELEMENTWISE
        fits = now and allows(lambda kind, _: kind <= BROADCAST)
    elif group.pattern <= BROADCAST:
        now = dominated.pattern <= REDUCTION
        fits = now and allows(lambda kind, sinks: kind <= (FUSABLE if sinks else INJECTIVE))
    else:
        fits = group.pattern in (INJECTIVE, TUPLE) and phase == 1 and allows(injective)
    if fits:
        commit()


def _between(source: Node, sink: Node) -> list[Node]:
    """Nodes strictly between a node and its post-dominator."""

    def readers(node: Node) -> list[Node]:
        return [reader for reader, _ in node.outputs if reader is not sink]

    return list(depth_first(readers(source), readers))


def _merge(child: Group, parent: Group) -> None:
    child, parent = child.find(), parent.find()
    if child is parent:
        return
    parent.size += child.size
    child.parent = parent
    if child.has_anchor:
        parent.has_anchor = True
        parent.pattern = max(child.pattern, parent.pattern)
