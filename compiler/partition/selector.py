"""Selectors: objects that grow a subgraph node by node instead of marking all nodes at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from compiler.backends.reasons import Unsupported
from compiler.errors import PartitionCallbackError

from .region_growing import UNMARKED, last_return, readers_of

if TYPE_CHECKING:
    from compiler.backends.graph import Graph


class Selector:
    """Base of selectors: every method but `select` has a default.

    In place of False an answer may be `Unsupported(reason)`. Of an operator that ends up in no
    subgraph the last reason counts.

    A node is meant by its id, the position in the graph that the strategy's `selector` callback
    got. For each node that is in no subgraph yet, in ascending order, `select` is asked whether a
    subgraph may begin there. From a first node the subgraph grows breadth-first: for every member
    `select_input` is asked for each of its inputs in order, then `select_output` for each of its
    readers in ascending order, unless that neighbor is in a subgraph already. An answer of True for
    a variable, or for a node that no subgraph may take, has no effect.

    If the nodes collected can't be one subgraph, because a path leaves them and comes back, the
    last of them that one comes back to is excluded, `reset` is called, and the subgraph grows again
    from the same node. At last `filter` may drop nodes; those may begin or join later subgraphs.

    What survives the filter but is no longer connected, or would feed another subgraph in a circle,
    is split, so that the partitioned graph is always acyclic.
    """

    def select(self, node: int) -> bool:
        """Whether a subgraph may begin at a node; `Unsupported(reason)` is a False."""
        raise NotImplementedError("a selector must define select")

    def select_input(self, node: int, input_node: int) -> bool:
        """Whether `input_node`, which feeds the member `node`, joins it."""
        return False

    def select_output(self, node: int, output_node: int) -> bool:
        """Whether `output_node`, which reads the member `node`, joins it."""
        return False

    def filter(self, candidates: list[int]) -> Sequence[int]:
        """Which of the collected nodes, in ascending order, to keep; none: no subgraph."""
        return candidates

    def reset(self) -> None:
        """Forget what was noted while the current subgraph grew; it grows anew."""


def is_bool(answer: Any) -> bool:
    """Whether a callback answered with Python's or numpy's bool."""
    return type(answer).__name__ in ("bool", "bool_")  # numpy's has either name


def select_marks(
    selector: Selector, graph: Graph, domains: Sequence[int | None], where: str
) -> list[int | Unsupported]:
    """Grow subgraphs over a graph.

    `domains`: per node None for one that no subgraph may take, else a number; nodes of different
    numbers are never in one subgraph. `where`: names partitioner and strategy in errors. Returns
    per node the number of its subgraph, -2 or a reason. The nodes of one number need not be
    convex after `filter`; `find_regions` splits them. Raises PartitionCallbackError: a method
    raised, or `filter` returned a node that was not a candidate.
    """
    return _Growth(selector, graph, domains, where).run()


class _Growth:
    def __init__(
        self, selector: Selector, graph: Graph, domains: Sequence[int | None], where: str
    ) -> None:
        self._selector = selector
        self._where = where
        self._domains = domains
        self._inputs = graph.predecessors()
        self._readers = readers_of(self._inputs)
        self._marks = [UNMARKED] * len(self._inputs)
        self._reasons: dict[int, Unsupported] = {}

    def run(self) -> list[int | Unsupported]:
        number = 0
        for node in range(len(self._marks)):
            if self._marks[node] != UNMARKED or not self._ask("select", node):
                continue
            if self._domains[node] is None:
                continue
            kept = self._filter(self._grow_acyclic(node))
            for member in kept:
                self._marks[member] = number
            number += bool(kept)
        return [
            self._reasons.get(node, mark) if mark == UNMARKED else mark
            for node, mark in enumerate(self._marks)
        ]

    def _grow_acyclic(self, seed: int) -> list[int]:
        excluded: set[int] = set()
        while True:
            members = self._grow(seed, excluded)
            last, _ = last_return(self._readers, members)
            if last < 0:
                return sorted(members)
            if last == seed:
                return [seed]
            excluded.add(last)
            self._call("reset", self._selector.reset)

    def _grow(self, seed: int, excluded: set[int]) -> set[int]:
        """Nodes that the selector collects from a first node, breadth-first."""
        members = {seed}
        queue = deque([seed])
        while queue:
            node = queue.popleft()
            around = [("select_input", source) for source in self._inputs[node]]
            around += [("select_output", reader) for reader in self._readers[node]]
            for question, other in around:
                if other in members or other in excluded or self._marks[other] != UNMARKED:
                    continue
                wanted = self._ask(question, node, other)
                if wanted and self._domains[other] == self._domains[seed]:
                    members.add(other)
                    queue.append(other)
        return members

    def _filter(self, candidates: list[int]) -> list[int]:
        kept = self._call("filter", self._selector.filter, list(candidates))
        if not isinstance(kept, Iterable) or isinstance(kept, (str, bytes)):
            raise PartitionCallbackError(
                f"{self._where}: filter of the selector returned {kept!r}, not a list of node ids"
            )
        kept = list(kept)
        known = set(candidates)
        for node in kept:
            if isinstance(node, bool) or node not in known:
                raise PartitionCallbackError(
                    f"{self._where}: filter of the selector returned {node!r}, "
                    "which is none of its candidates"
                )
        for node in known.difference(kept):
            self._reasons[node] = Unsupported("filter of the selector dropped it")
        return [int(node) for node in kept]

    def _ask(self, method: str, *nodes: int) -> bool:
        answer = self._call(method, getattr(self._selector, method), *nodes)
        if isinstance(answer, Unsupported):
            self._reasons[nodes[-1]] = answer
        elif not is_bool(answer):
            raise PartitionCallbackError(
                f"{self._where}: {method}{nodes} of the selector returned {answer!r}, "
                "not True, False or Unsupported(reason)"
            )
        return bool(answer)

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise PartitionCallbackError(
                f"{self._where}: {name} of the selector raised {type(error).__name__}: {error}"
            ) from error
