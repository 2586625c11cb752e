"""The nodes of a symbol file as plain data classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from compiler.errors import FrontendError
from compiler.support.depth_first import depth_first

VARIABLE = "null"
"""Operator name of a variable: an input, a parameter, an auxiliary state."""


class Entry(NamedTuple):
    """Output `output` of node `node`, hidden outputs counted."""

    node: int
    output: int = 0
    version: int = 0  # earlier writes to a variable; kept for writing, unused at inference


@dataclass
class Node:
    """One operator application or variable (`op` is "null"); names may repeat."""

    op: str
    name: str
    inputs: list[Entry] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    control_deps: list[int] = field(default_factory=list)
    # body of a partitioned subgraph, or bodies of control flow
    subgraphs: list[Graph] = field(default_factory=list)
    num_outputs: int | None = None  # as the file states, hidden ones counted

    @property
    def is_variable(self) -> bool:
        """Whether the node computes nothing."""
        return self.op == VARIABLE

    def predecessors(self) -> Iterator[int]:
        """Indices of the nodes that come before this one, inputs first."""
        return iter([*(entry[0] for entry in self.inputs), *self.control_deps])


@dataclass
class Graph:
    """Nodes, the outputs `heads` (repeats allowed), and the file's graph attributes."""

    nodes: list[Node] = field(default_factory=list)
    heads: list[Entry] = field(default_factory=list)
    # (type name, value), e.g. {"mxnet_version": ("int", 10901)}
    attrs: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def variables(self) -> list[Node]:
        """The variables, in node order."""
        return [node for node in self.nodes if node.is_variable]

    def reachable(self, heads: Sequence[Entry] | None = None) -> list[int]:
        """Indices of the nodes that `heads` need, in depth-first post-order; rejects cycles."""
        order: dict[int, None] = {}
        needed = [head.node for head in (self.heads if heads is None else heads)]
        for index in depth_first(needed, lambda each: self.nodes[each].predecessors()):
            for other in self.nodes[index].predecessors():
                if other not in order:
                    raise FrontendError(
                        f"the symbol has a cycle: node {self.nodes[other].name!r} "
                        f"(operator {self.nodes[other].op}) depends on its own output"
                    )
            order[index] = None
        return list(order)

    def ordered(self, heads: Sequence[Entry] | None = None) -> Graph:
        """The part of the graph that `heads` need, in depth-first post-order."""
        wanted = self.heads if heads is None else list(heads)
        order = self.reachable(wanted)
        position = {old: new for new, old in enumerate(order)}
        nodes = [
            replace(
                node,
                inputs=[Entry(position[index], *rest) for index, *rest in node.inputs],
                attrs=dict(node.attrs),
                control_deps=[position[index] for index in node.control_deps],
            )
            for node in (self.nodes[old] for old in order)
        ]
        moved = [Entry(position[index], *rest) for index, *rest in wanted]
        return Graph(nodes, moved, dict(self.attrs))
