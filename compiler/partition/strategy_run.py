"""One strategy on one graph: claim, form regions, review, accept; the same for every adapter."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from compiler.backends import GraphPass, Options, Partitioner, Strategy, Unsupported
from compiler.backends.graph import VARIABLE, Graph
from compiler.backends.reasons import LIMIT, PLACEMENT, REVIEW, SCOPE, UNSELECTED
from compiler.errors import PartitionCallbackError, PartitionError
from compiler.support.nearest import nearest

from .candidates import Candidate, Claims, Selection
from .options import Limits, bounded
from .regions import ANY, UNMARKED, find_regions
from .selector import Selector, is_bool, select_marks
from .timeout import within

if TYPE_CHECKING:
    import numpy as np

    from compiler.backends.registry import Check, FunctionMarks

_NO_SCOPE = Unsupported("no subgraph may take it: not an operator call in a dataflow block", SCOPE)
_SLOWER = Unsupported("another engine was measured to run it faster", PLACEMENT)
_RESERVED = ("global_symbol", "num_input", "Primitive")
"""Function attributes that TVM gives a meaning that would break the module."""


class Adapter(Protocol):
    """The module to partition, as a graph independent of its dialect.

    * `graph`: what regions are found on; it stays as it is while subgraphs are accepted.
    * `domains`: per node None for one that no subgraph may take, else a number; nodes of different
      numbers are never in one subgraph.
    * `function`, `bindings`: of a module the function that the graph is of, and the binding of each
      node, None for a variable; None for a symbol.
    * `args`, `aux`: known values, by the names that callbacks see as "argName".
    """

    @property
    def graph(self) -> Graph: ...
    @property
    def domains(self) -> Sequence[int | None]: ...
    @property
    def function(self) -> Any: ...
    @property
    def bindings(self) -> Sequence[int | None] | None: ...
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


@dataclass(frozen=True)
class StrategyRun:
    """One run of a strategy: the partitioner's name, the strategy, and the caller's options."""

    backend: str
    strategy: Strategy
    options: Options
    limits: Limits
    owners: Mapping[int, str] | None = None  # by hash of a variable, who may take its binding

    @property
    def where(self) -> str:
        """Names partitioner and strategy in errors."""
        return f"partitioner {self.backend!r}, strategy {self.strategy.name!r}"

    def select(self, adapter: Adapter, claims: Claims | None = None, first: int = 0) -> Selection:
        """Review and accept claimed subgraphs one by one, numbered from `first`.

        `claims`: of the method, if asked before.
        """
        graph, domains = adapter.graph, adapter.domains
        claims = claims or self.claims(adapter)
        regions = find_regions(graph.predecessors(), claims.marks, [each or 0 for each in domains])
        candidates: list[Candidate] = []
        for number, (members, objection) in enumerate(bounded(graph, regions, self.limits), first):
            decision: Mapping[str, str] | Unsupported
            if objection:
                decision = Unsupported(objection, LIMIT)
            else:
                decision = self._review(adapter, members, number)
            candidates.append(
                Candidate.of(graph, members, self.backend, self.strategy.name, number, decision)
            )
            if not isinstance(decision, Unsupported):
                adapter.accept(members, number, decision)
        names = self.backend, self.strategy.name
        return Selection(*names, graph, domains, claims, tuple(candidates), self.limits)

    def claims(self, adapter: Adapter) -> Claims:
        """The strategy's marks on the nodes that a subgraph may take, and its reasons."""
        text, graph = adapter.graph_json(), adapter.graph
        if self.strategy.supported_ops is not None:
            answers = self._claim_nodes(text, len(graph.nodes))
        elif self.strategy.function_marks is not None:
            answers = self._mark_bindings(adapter, self.strategy.function_marks)
        elif self.strategy.check is not None:
            answers = self._check_nodes(text, self.strategy.check, adapter.domains)
        else:
            selector = self._make_selector(text)
            answers = within(
                self.limits.callback_timeout,
                f"{self.where}: the selector",
                lambda: select_marks(selector, graph, adapter.domains, self.where),
            )
        if self.owners is not None and adapter.bindings is not None:
            values = [each for block in adapter.function.body.blocks for each in block.bindings]
            owners = [
                "" if binding is None else self.owners.get(hash(values[binding].var), "")
                for binding in adapter.bindings
            ]
            answers = [a if o == self.backend else _SLOWER for a, o in zip(answers, owners)]
        marks: list[int] = []
        reasons: dict[int, Unsupported] = {}
        for index, (node, answer, domain) in enumerate(zip(graph.nodes, answers, adapter.domains)):
            reason = _NO_SCOPE if domain is None else self._unselected
            if isinstance(answer, Unsupported):
                reason = answer
            if isinstance(answer, Unsupported) or domain is None:
                marks.append(UNMARKED)
            else:
                marks.append(answer)
            if marks[-1] == UNMARKED and node.op != VARIABLE:
                reasons[index] = reason
        return Claims(marks, reasons)

    def _mark_bindings(self, adapter: Adapter, marks: FunctionMarks) -> list[int | Unsupported]:
        where = f"{self.where}: function_marks"
        if adapter.function is None or adapter.bindings is None:
            raise PartitionError(f"{self.where} partitions modules, not symbols")
        made = self._call(where, marks, adapter.function, dict(self.options))
        count = sum(len(block.bindings) for block in adapter.function.body.blocks)
        if not isinstance(made, list) or len(made) != count:
            raise PartitionCallbackError(f"{where} must return a list with {count} marks")
        return [
            UNMARKED if binding is None else _mark(where, node, made[binding])
            for node, binding in enumerate(adapter.bindings)
        ]

    @cached_property
    def _unselected(self) -> Unsupported:
        return Unsupported(f"strategy {self.strategy.name!r} does not select it", UNSELECTED)

    def _check_nodes(
        self, graph_json: str, check: Check, domains: Sequence[int | None]
    ) -> list[int | Unsupported]:
        where = f"{self.where}: check"
        nodes = json.loads(graph_json)["nodes"]
        answers: list[int | Unsupported] = []
        for node, domain in zip(nodes, domains, strict=True):
            if node["op"] == VARIABLE or domain is None:
                answers.append(UNMARKED)
                continue
            inputs = [dict(nodes[producer]) for producer, *_ in node["inputs"]]
            answer = self._call(where, check, dict(node), inputs, dict(self.options))
            if not isinstance(answer, Unsupported) and not is_bool(answer):
                raise PartitionCallbackError(
                    f"{where} of {node['op']} {node['name']!r} returned {answer!r}, "
                    "not True, False or Unsupported(reason)"
                )
            kept = answer if isinstance(answer, Unsupported) else UNMARKED
            answers.append(ANY if answer else kept)
        return answers

    def _make_selector(self, graph_json: str) -> Selector:
        make = self.strategy.selector
        assert make is not None, "the strategy claims nodes with supported_ops"
        where = f"{self.where}: selector"
        made = self._call(where, make, graph_json, dict(self.options))
        methods = ("select", "select_input", "select_output", "filter", "reset")
        if not all(callable(getattr(made, method, None)) for method in methods):
            raise PartitionCallbackError(
                f"{where} returned {made!r}, which lacks one of {', '.join(methods)}; "
                "derive from compiler.partition.Selector"
            )
        return made

    def _claim_nodes(self, graph_json: str, size: int) -> list[int | Unsupported]:
        """Per node -2, -1, the number of a subgraph, or a reason."""
        where = f"{self.where}: supported_ops"
        supported_ops = self.strategy.supported_ops
        assert supported_ops is not None, "the strategy claims nodes with a selector"
        ids: list[int | Unsupported] = [UNMARKED] * size
        returned = self._call(where, supported_ops, graph_json, ids, dict(self.options))
        marks: Any = ids if returned is None else returned
        message = f"{where} returned {marks!r}, not a list of integers or None"
        if isinstance(marks, (str, bytes, Mapping)):
            raise PartitionCallbackError(message)
        try:
            marks = list(marks)
        except TypeError as error:
            raise PartitionCallbackError(message) from error
        if len(marks) != size:
            raise PartitionCallbackError(
                f"{where} left {len(marks)} ids for {size} nodes; there must be one per node"
            )
        if set(map(type, marks)) == {int}:
            return marks
        return [_mark(where, node, mark) for node, mark in enumerate(marks)]

    def _review(
        self, adapter: Adapter, members: Sequence[int], number: int
    ) -> dict[str, str] | Unsupported:
        """Attributes for the accepted function; for a rejected subgraph the reason."""
        attrs: dict[str, str] = {}
        review = self.strategy.accept_subgraph
        if review is None:
            return attrs
        where = f"{self.where}, subgraph {number}: accept_subgraph"
        given = adapter.subgraph_json(members), number, dict(self.options)
        accepted = self._call(where, review, *given, attrs, adapter.args, adapter.aux)
        if isinstance(accepted, Unsupported):
            return Unsupported(accepted.reason, REVIEW)
        if not is_bool(accepted):
            raise PartitionCallbackError(
                f"{where} returned {accepted!r}, not True, False or Unsupported(reason)"
            )
        if not accepted:
            return Unsupported(attrs.get("reason") or "accept_subgraph returned False", REVIEW)
        for key, value in attrs.items():
            if not isinstance(key, str) or not key or not isinstance(value, str):
                raise PartitionCallbackError(
                    f"{where} set attribute {key!r} to {value!r}; names and values must be str"
                )
            if key in _RESERVED or key.startswith("baton."):
                raise PartitionCallbackError(
                    f"{where} set attribute {key!r}, whose name is reserved"
                )
        return dict(attrs)

    def _call(self, where: str, call: Callable[..., Any], *args: Any) -> Any:
        return _call(where, self.limits.callback_timeout, call, *args)


def check_names(chain: Sequence[Partitioner], options: Options) -> None:
    """Raise PartitionError for an option that no partitioner of a chain reads."""
    if any(each.options is None for each in chain):
        return
    known = {name for each in chain for name in each.options or ()}
    known |= {each.name for each in fields(Limits)}
    for name in options.keys() - known:
        backends = ", ".join(repr(each.name) for each in chain)
        raise PartitionError(f"partitioner {backends} has no option {name!r}{nearest(name, known)}")


def check_options(partitioner: Partitioner, options: Options, timeout: float | None) -> None:
    """Let a partitioner reject options. Raises PartitionError: it rejects them; with its reason."""
    check = partitioner.check_options
    if check is None:
        return
    where = f"partitioner {partitioner.name!r}: check_options"
    reason = _call(where, timeout, check, dict(options))
    if reason is not None and not isinstance(reason, str):
        raise PartitionCallbackError(f"{where} returned {reason!r}, not None or a reason")
    if reason:
        raise PartitionError(f"partitioner {partitioner.name!r} refuses the options: {reason}")


def run_pass(
    chosen: GraphPass,
    graph_json: str,
    options: Options,
    args: Mapping[str, np.ndarray],
    aux: Mapping[str, np.ndarray],
    timeout: float | None = None,
) -> tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run a graph pass and check the kinds of what it returned.

    Raises PartitionCallbackError: the pass raised, took too long, or did not return a text and two
    dicts.
    """
    where = f"graph pass {chosen.name!r}"
    made = _call(where, timeout, chosen.run, graph_json, dict(options), args, aux)
    is_triple = isinstance(made, tuple) and len(made) == 3
    if not is_triple or list(map(type, made)) != [str, dict, dict]:
        raise PartitionCallbackError(
            f"{where} returned {made!r:.80}, not JSON text and two dicts of arrays"
        )
    return made


def _call(where: str, timeout: float | None, call: Callable[..., Any], *args: Any) -> Any:
    def describing() -> Any:
        try:
            return call(*args)
        except Exception as error:
            text = f": {error}" if str(error) else ""
            raise PartitionCallbackError(f"{where} raised {type(error).__name__}{text}") from error

    return within(timeout, where, describing)


def _mark(where: str, node: int, mark: Any) -> int | Unsupported:
    if isinstance(mark, Unsupported):
        return mark
    try:
        value = operator.index(mark)
    except TypeError:
        value = None
    if value is None or isinstance(mark, bool):
        raise PartitionCallbackError(
            f"{where} set id {mark!r} for node {node}; an id is -2 (not claimed), "
            "-1 (any subgraph), the number of a subgraph or Unsupported(reason)"
        )
    return value
