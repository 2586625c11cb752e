"""One strategy on one graph: claim, form regions, review, accept; the same for every adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from compiler.backends import Options, Strategy
from compiler.backends.graph import Graph

from .callbacks import accept, claim_nodes, make_selector
from .candidates import Candidate
from .options import Limits, bounded
from .regions import UNMARKED, find_regions
from .selector import select_marks
from .timeout import within

if TYPE_CHECKING:
    import numpy as np


class Adapter(Protocol):
    """The module to partition, as a graph independent of its dialect.

    * `graph`: what regions are found on; it stays as it is while subgraphs are accepted.
    * `domains`: per node None for one that no subgraph may take, else a number; nodes of different
      numbers are never in one subgraph.
    * `args`, `aux`: known values, by the names that callbacks see as "argName".
    """

    @property
    def graph(self) -> Graph: ...
    @property
    def domains(self) -> Sequence[int | None]: ...
    @property
    def args(self) -> Mapping[str, np.ndarray]: ...
    @property
    def aux(self) -> Mapping[str, np.ndarray]: ...

    def graph_json(self) -> str:
        """The graph as callbacks see it."""

    def subgraph_json(self, members: Sequence[int]) -> str:
        """The subgraph of some nodes as the accept callback sees it."""

    def accept(self, members: Sequence[int], number: int, attrs: Mapping[str, str]) -> None:
        """Make some nodes a subgraph."""


def run_strategy(
    adapter: Adapter,
    backend: str,
    strategy: Strategy,
    options: Options,
    limits: Limits,
    marks: Sequence[int] | None = None,
) -> list[Candidate]:
    """Let a strategy claim subgraphs; each is reviewed, and accepted or not, before the next.

    * `marks`: what `claims` gave, if it was asked already.
    Raises PartitionCallbackError: a callback raised, returned nonsense or took too long.
    """
    graph = adapter.graph
    if marks is None:
        marks = claims(adapter, backend, strategy, options, limits)
    regions = find_regions(graph.predecessors(), marks, [each or 0 for each in adapter.domains])
    candidates: list[Candidate] = []
    for number, (members, objection) in enumerate(bounded(graph, regions, limits)):
        decision = objection or accept(
            backend,
            strategy,
            adapter.subgraph_json(members) if strategy.accept_subgraph is not None else "",
            number,
            options,
            adapter.args,
            adapter.aux,
            limits.callback_timeout,
        )
        candidates.append(Candidate.of(graph, members, backend, strategy.name, number, decision))
        if not isinstance(decision, str):
            adapter.accept(members, number, decision)
    return candidates


def claims(
    adapter: Adapter, backend: str, strategy: Strategy, options: Options, limits: Limits
) -> list[int]:
    """A strategy's marks on the nodes that a subgraph may take.

    Raises PartitionCallbackError: a callback raised, returned nonsense or took too long.
    """
    marks = _answer(adapter, backend, strategy, options, limits)
    domains = zip(marks, adapter.domains, strict=True)
    return [UNMARKED if domain is None else mark for mark, domain in domains]


def _answer(
    adapter: Adapter, backend: str, strategy: Strategy, options: Options, limits: Limits
) -> list[int]:
    graph, limit = adapter.graph, limits.callback_timeout
    graph_json = adapter.graph_json()
    if strategy.supported_ops is not None:
        size = len(graph.nodes)
        return claim_nodes(backend, strategy, graph_json, size, options, limit)
    selector = make_selector(backend, strategy, graph_json, options, limit)
    where = f"partitioner {backend!r}, strategy {strategy.name!r}"
    return within(
        limit,
        f"{where}: the selector",
        lambda: select_marks(selector, graph, adapter.domains, where),
    )
