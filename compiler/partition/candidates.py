"""Outcomes of the subgraphs that strategies proposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.backends.graph import VARIABLE, Graph


@dataclass(frozen=True)
class Candidate:
    """One subgraph that a strategy wanted."""

    backend: str  # who wanted it
    strategy: str
    number: int  # its id among the candidates of the strategy
    nodes: tuple[str, ...]  # names of its operator nodes, in topological order
    operators: tuple[str, ...]  # operator of each node
    parameters: tuple[str, ...]  # parameters and constants that it reads
    accepted: bool = False
    reason: str = ""  # why it was rejected; empty for an accepted one
    attrs: Mapping[str, str] = field(default_factory=dict)  # what the backend set on it

    @classmethod
    def of(
        cls,
        graph: Graph,
        members: Sequence[int],
        backend: str,
        strategy: str,
        number: int,
        decision: Mapping[str, str] | str,
    ) -> Candidate:
        """The candidate of some nodes of a graph: accepted with attributes, or why rejected."""
        nodes = [graph.nodes[member] for member in members]
        read = dict.fromkeys([producer for node in nodes for producer, _ in node.inputs])
        variables = [node for node in map(graph.nodes.__getitem__, read) if node.op == VARIABLE]
        return cls(
            backend,
            strategy,
            number,
            tuple([node.name for node in nodes]),
            tuple([node.op for node in nodes]),
            tuple([node.name for node in variables if node.attrs.get("param") == "True"]),
            not isinstance(decision, str),
            decision if isinstance(decision, str) else "",
            {} if isinstance(decision, str) else decision,
        )


@dataclass(frozen=True)
class Partitioning:
    """A partitioned module or symbol and how it came about."""

    module: Any
    graph: Graph  # `main`, or the symbol, before the first strategy
    # Of all strategies, in the order they ran. Names of nodes are those of `graph`.
    candidates: list[Candidate]
