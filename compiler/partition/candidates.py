"""Outcomes of the subgraphs that strategies proposed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler.backends.graph import VARIABLE, Graph
from compiler.backends.reasons import Unsupported

from .options import Limits

if TYPE_CHECKING:
    from compiler.records.placement_log import PlacementRecord


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
    kind: str = ""  # who rejected it: a constant of `compiler.backends.reasons`

    @classmethod
    def of(
        cls,
        graph: Graph,
        members: Sequence[int],
        backend: str,
        strategy: str,
        number: int,
        decision: Mapping[str, str] | Unsupported,
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
            not isinstance(decision, Unsupported),
            decision.reason if isinstance(decision, Unsupported) else "",
            {} if isinstance(decision, Unsupported) else decision,
            decision.kind if isinstance(decision, Unsupported) else "",
        )


@dataclass(frozen=True)
class Claims:
    """A strategy's answers for the nodes of a graph."""

    marks: list[int]  # per node, as `find_regions` takes them
    reasons: Mapping[int, Unsupported]  # of each operator that no subgraph takes, by node


@dataclass(frozen=True)
class Selection:
    """One strategy's subgraphs of one graph: `main`, a branch or a loop body, or a symbol."""

    backend: str
    strategy: str
    graph: Graph  # as the strategy saw it, with the subgraphs of those before it as nodes
    domains: Sequence[int | None]  # per node, as an `Adapter` has them
    claims: Claims
    candidates: tuple[Candidate, ...]
    limits: Limits
    is_main: bool = True  # False for a graph inside of `main`, or of another function


@dataclass(frozen=True)
class Partitioning:
    """A partitioned module or symbol and how it came about."""

    module: Any
    graph: Graph  # `main`, or the symbol, before the first strategy
    # Of all strategies, in the order they ran. Names of nodes are those of `graph`.
    candidates: list[Candidate]
    selections: tuple[Selection, ...] = ()  # of each strategy and graph, in the order they ran
    # If the fastest placement was asked for: measurements, the chosen one first, and the share of
    # the predicted time that free boundaries and calls could save; NaN without mixed placements
    measured: tuple[PlacementRecord, ...] = ()
    gap: float = math.nan
