"""Outcomes of the subgraphs that strategies proposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.backends.graph import VARIABLE, Graph


@dataclass(frozen=True)
class Candidate:
    """One subgraph that a strategy wanted.

    Attributes
    ----------
    backend, strategy : str
        Who wanted it.
    number : int
        Its id among the candidates of the strategy.
    nodes : tuple of str
        Names of its operator nodes, in topological order.
    operators : tuple of str
        Operator of each node.
    parameters : tuple of str
        Parameters and constants that it reads.
    accepted : bool
    reason : str
        Why it was rejected; empty for an accepted one.
    attrs : dict of str to str
        What the backend set on it.
    """

    backend: str
    strategy: str
    number: int
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    parameters: tuple[str, ...]
    accepted: bool = False
    reason: str = ""
    attrs: Mapping[str, str] = field(default_factory=dict)

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
    """A partitioned module or symbol and how it came about.

    Attributes
    ----------
    module : tvm.IRModule or Symbol
    graph : Graph
        `main`, or the symbol, before the first strategy.
    candidates : list of Candidate
        Of all strategies, in the order they ran. Names of nodes are those of `graph`.
    """

    module: Any
    graph: Graph
    candidates: list[Candidate]
