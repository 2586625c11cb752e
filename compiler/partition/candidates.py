"""What became of the subgraphs that strategies wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .graph import VARIABLE, Graph

if TYPE_CHECKING:
    from tvm import IRModule


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
        cls, graph: Graph, members: Sequence[int], backend: str, strategy: str, number: int
    ) -> Candidate:
        """The candidate of some nodes of a graph, not decided yet."""
        nodes = [graph.nodes[member] for member in members]
        read = dict.fromkeys(producer for node in nodes for producer, _ in node.inputs)
        return cls(
            backend,
            strategy,
            number,
            tuple(node.name for node in nodes),
            tuple(node.op for node in nodes),
            tuple(
                graph.nodes[producer].name
                for producer in read
                if graph.nodes[producer].op == VARIABLE
                and graph.nodes[producer].attrs.get("param") == "True"
            ),
        )

    def decided(self, attrs: Mapping[str, str] | None, reason: str) -> Candidate:
        """Accepted with attributes, or, without any, rejected for a reason."""
        return replace(self, accepted=attrs is not None, reason=reason, attrs=attrs or {})


@dataclass(frozen=True)
class Partitioning:
    """A partitioned module and how it came about.

    Attributes
    ----------
    module : tvm.IRModule
    graph : Graph
        `main` before the first strategy.
    candidates : list of Candidate
        Of all strategies, in the order they ran. Names of nodes are those of `graph`.
    """

    module: IRModule
    graph: Graph
    candidates: list[Candidate]
