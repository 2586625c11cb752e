"""Explanation of a partitioning: where each operator runs, why, and what would change it.

Everything is read from the `Selection`s of a `Partitioning`: the strategies are not asked again.
A counterfactual marks the operators that stayed behind and forms regions anew, with the algorithm
and the limits of the partitioning itself. Subgraphs that a strategy's review rejected stay
rejected; it is taken to accept others.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from textwrap import shorten
from typing import Any

from compiler.backends.graph import VARIABLE, Entry, Graph, Node
from compiler.backends.reasons import CYCLE, LIMIT, NUMBER, PLACEMENT, SCOPE, Unsupported
from compiler.errors import PartitionError
from compiler.lowering.report import html_table
from compiler.support.nearest import nearest

from .candidates import Partitioning, Selection
from .costs import NodeCost, Rates, costs_of, entry_bytes, measured_rates
from .options import bounded
from .region_growing import ANY, last_return, readers_of
from .regions import find_regions

logger = logging.getLogger("baton.partition")

BUILD = "baton"
"""Place of the operators that no back end took: the build compiles them."""

_MOST_COMBINED = 4  # operators of which all combinations are tried as counterfactuals


@dataclass(frozen=True)
class Share:
    """Share of the model that one back end, or the build itself, runs."""

    backend: str  # `BUILD` for the operators that no back end took
    regions: int  # accepted subgraphs
    operators: int
    flops: int  # of one inference
    operators_share: float  # of all operators, 0 to 1
    flops_share: float
    microseconds: float  # predicted time of an inference, without the boundaries


@dataclass(frozen=True)
class Reason:
    """Why an operator is in no subgraph of a strategy; kinds: `compiler.backends.reasons`."""

    backend: str
    strategy: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Left:
    """An operator that no back end took."""

    name: str  # the model's own name of the node, else that of its result
    operator: str
    flops: int
    microseconds: float  # predicted time
    reasons: tuple[Reason, ...]  # one for each strategy that was asked


@dataclass(frozen=True)
class Boundary:
    """A tensor that goes from one subgraph, or the build's operators, to another."""

    name: str  # the model's own name of the node that computes it
    shape: str
    dtype: str
    producer: str  # "onnxruntime 0": back end and number of the subgraph; `BUILD`
    consumer: str
    bytes: int
    # Predicted time of writing and reading it, and of the engines' changes of its layout
    microseconds: float


@dataclass(frozen=True)
class Cut:
    """Two adjacent subgraphs of one strategy that could not be one.

    `one`, `two`: numbers of the subgraphs. `kind`, `reason`: as in `Reason`.
    """

    backend: str
    strategy: str
    one: int
    two: int
    kind: str
    reason: str


@dataclass(frozen=True)
class Counterfactual:
    """Effect of a strategy supporting more operators."""

    backend: str
    strategy: str
    operators: tuple[str, ...]  # names of the operators that stay behind today
    count: int  # nodes of these operators that would be taken
    regions: tuple[int, int]  # today and then; of the strategy alone
    flops_share: tuple[float, float]
    boundary_bytes: tuple[int, int]
    # Predicted; of boundaries and calls alone: the back end is taken to compute as fast as
    # the build
    saved_microseconds: float

    def __str__(self) -> str:
        before, after = (f"{share:.0%}" for share in self.flops_share)
        saved = self.saved_microseconds
        effect = f"saves about {saved:.0f} us" if saved >= 0 else f"costs about {-saved:.0f} us"
        return (
            f"if {self.backend} supported {' and '.join(self.operators)}: "
            f"{self.regions[0]} -> {self.regions[1]} regions, {before} -> {after} of the FLOPs, "
            f"boundaries {_size(self.boundary_bytes[0])} -> {_size(self.boundary_bytes[1])}, "
            f"{effect}"
        )


@dataclass(frozen=True)
class Explanation:
    """Where each operator runs and why.

    Attributes
    ----------
    operators, flops : int
        Of the whole model.
    shares : tuple of Share
        By back end, in the order they ran; what the build compiles last.
    left : tuple of Left
        In the model's order.
    boundaries : tuple of Boundary
        Largest first.
    cuts : tuple of Cut
    counterfactuals : tuple of Counterfactual
        Most time saved first.
    """

    operators: int
    flops: int
    shares: tuple[Share, ...]
    left: tuple[Left, ...]
    boundaries: tuple[Boundary, ...]
    cuts: tuple[Cut, ...]
    counterfactuals: tuple[Counterfactual, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)

    def summary(self) -> list[str]:
        """Two lines: who runs how much; what stays behind most and why."""
        return _summary(self.operators, self.shares, self.left)

    def _repr_html_(self) -> str:
        """Tables of who runs how much and of what no back end took, for notebooks."""
        ran, stays = self.summary()
        shares = [
            (each.backend, each.regions, each.operators, f"{each.flops_share:.1%}")
            for each in self.shares
        ]
        left = [
            (each.name, each.operator, "; ".join(f"{r.backend}: {r.reason}" for r in each.reasons))
            for each in self.left
        ]
        return html_table(
            ran, ("back end", "subgraphs", "operators", "FLOPs"), shares
        ) + html_table(stays, ("node", "operator", "why no back end took it"), left)


def explain_partitioning(
    done: Partitioning,
    *,
    what_if: Sequence[str | Sequence[str]] | None = None,
    rates: Rates | None = None,
) -> Explanation:
    """Explain the result of `partition_with_report`; see `compiler.partition.explain`."""
    rates = rates or measured_rates()
    scopes = _scopes(done)
    costs = [cost for scope in scopes for cost in scope.operator_costs()]
    whole = sum(cost.flops for cost in costs) or 1
    shares = [
        _share(backend, scopes, len(costs), whole, rates)
        for backend in [*dict.fromkeys(each.backend for each in done.selections), BUILD]
    ]
    boundaries = [each for scope in scopes for each in scope.boundaries(rates)]
    cuts = [cut for selection in done.selections for cut in _cuts(selection)]
    return Explanation(
        len(costs),
        sum(cost.flops for cost in costs),
        tuple(shares),
        tuple(each for scope in scopes for each in scope.left(rates)),
        tuple(sorted(boundaries, key=lambda each: -each.bytes)),
        tuple(cuts),
        tuple(_counterfactuals(done.selections, what_if, whole, rates)),
    )


def show_summary(done: Partitioning) -> None:
    """Write the two lines of `Explanation.summary` to stderr if the logger "baton" shows warnings.

    `baton --quiet` and `logging.getLogger("baton").setLevel(logging.ERROR)` silence them.
    """
    if not logger.isEnabledFor(logging.WARNING):
        return
    if done.measured:
        sys.stderr.write(f"placement: {'; '.join(map(str, done.measured))}\n")
    if not done.selections:
        return
    scopes, rates = _scopes(done), Rates(1.0, 1.0)
    costs = [cost for scope in scopes for cost in scope.operator_costs()]
    whole = sum(cost.flops for cost in costs)
    names = dict.fromkeys(each.backend for each in done.selections)
    shares = [_share(backend, scopes, len(costs), whole or 1, rates) for backend in names]
    left = [each for scope in scopes for each in scope.left(rates)]
    sys.stderr.write("".join(f"{line}\n" for line in _summary(len(costs), shares, left)))


def _summary(operators: int, shares: Iterable[Share], left: Iterable[Left]) -> list[str]:
    parts = []
    for share in shares:
        if share.backend != BUILD:
            flops = f" and {share.flops_share:.0%} of the FLOPs" if share.flops else ""
            count = f"{share.operators_share:.0%} of {operators} operators"
            parts.append(f"{share.backend} {count}{flops} in {_regions(share.regions)}")
    counted: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for each in left:
        counted[each.operator] += 1
        reason = each.reasons[-1].reason if each.reasons else ""
        texts.setdefault(each.operator, shorten(reason, 100, placeholder=" ..."))
    most = [f"{count} {name} ({texts[name]})" for name, count in counted.most_common(3)]
    rest = f" and {len(counted) - 3} more" if len(counted) > 3 else ""
    stays = f"left to the build: {', '.join(most)}{rest}" if most else "nothing stays behind"
    return [f"partition: {'; '.join(parts)}", stays]


class _Scope:
    """One graph before the first strategy, and what became of each node.

    `place`: of a node the back end and the number of its subgraph. `reasons`: of a node without
    one, by name.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.costs = costs_of(graph)
        self.names = {node.name: index for index, node in enumerate(graph.nodes)}
        self._of_source: dict[str, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            if node.source:
                self._of_source.setdefault(node.source, []).append(index)
        self.place: dict[int, tuple[str, str, int]] = {}
        self.reasons: dict[int, list[Reason]] = {}

    def add(self, selection: Selection) -> None:
        """Note what a strategy took and left."""
        own = selection.backend, selection.strategy
        nodes = {node.name: node for node in selection.graph.nodes}
        for candidate in selection.candidates:
            for index in (each for name in candidate.nodes for each in self._find(nodes[name])):
                if candidate.accepted:
                    self.place.setdefault(index, (*own, candidate.number))
                else:
                    self._note(index, Reason(*own, candidate.kind, candidate.reason))
        for number, reason in selection.claims.reasons.items():
            for index in self._find(selection.graph.nodes[number]):
                self._note(index, Reason(*own, reason.kind, reason.reason))

    def _find(self, node: Node) -> list[int]:
        """The node of a later graph; those of the same origin if that is in another dialect."""
        same = self.names.get(node.name)
        if same is not None and self.graph.nodes[same].source == node.source:
            return [same]
        return self._of_source.get(node.source, [])

    def _note(self, index: int, reason: Reason) -> None:
        known = self.reasons.setdefault(index, [])
        if index not in self.place and reason not in known:
            known.append(reason)

    def operators(self) -> list[int]:
        return [index for index, node in enumerate(self.graph.nodes) if node.op != VARIABLE]

    def operator_costs(self) -> list[NodeCost]:
        return [self.costs[index] for index in self.operators()]

    def left(self, rates: Rates) -> list[Left]:
        return [
            Left(
                source_of(self.graph.nodes[index]),
                self.graph.nodes[index].op,
                self.costs[index].flops,
                rates.microseconds(self.costs[index].flops, self.costs[index].nbytes),
                tuple(self.reasons.get(index, ())),
            )
            for index in self.operators()
            if index not in self.place
        ]

    def boundaries(self, rates: Rates) -> list[Boundary]:
        found = []
        for (producer, output), consumer in _crossings(self.graph, self.place):
            shape, dtype = self.graph.nodes[producer].types[output]
            nbytes = entry_bytes(self.graph, producer, output)
            sides = _title(self.place.get(producer)), _title(consumer)
            engines = [side.split()[0] for side in sides]
            found.append(
                Boundary(
                    source_of(self.graph.nodes[producer]),
                    shape,
                    dtype,
                    *sides,
                    nbytes,
                    rates.crossing(nbytes, *engines),
                )
            )
        return found


def source_of(node: Node) -> str:
    """The model's own name of a node, else the name of its result."""
    return node.source or node.name


def _scopes(done: Partitioning) -> list[_Scope]:
    """Graphs of the first strategy, with the answers of all strategies for the nodes in them."""
    first = done.selections[0] if done.selections else None
    scopes: list[_Scope] = []
    ordinals: Counter[tuple[str, str]] = Counter()
    for selection in done.selections:
        own = selection.backend, selection.strategy
        ordinal, ordinals[own] = ordinals[own], ordinals[own] + 1
        if first is not None and own == (first.backend, first.strategy):
            scopes.append(_Scope(done.graph if selection.is_main else selection.graph))
        names = {node.name for node in selection.graph.nodes if node.op != VARIABLE}
        same = [scopes[ordinal]] if ordinal < len(scopes) else []
        found = [scope for scope in [*same, *scopes] if names & scope.names.keys()]
        for scope in [*found, *same][:1]:
            scope.add(selection)
    return scopes or [_Scope(done.graph)]


def _share(backend: str, scopes: Iterable[_Scope], count: int, whole: int, rates: Rates) -> Share:
    regions: set[tuple[int, tuple[str, str, int]]] = set()
    operators, flops, microseconds = 0, 0, 0.0
    for number, scope in enumerate(scopes):
        for index in scope.operators():
            place = scope.place.get(index)
            if backend != (BUILD if place is None else place[0]):
                continue
            if place is not None:
                regions.add((number, place))
            cost = scope.costs[index]
            operators += 1
            flops += cost.flops
            microseconds += rates.microseconds(cost.flops, cost.nbytes)
    shares = operators / max(count, 1), flops / whole
    return Share(backend, len(regions), operators, flops, *shares, microseconds)


def _crossings(graph: Graph, place: Mapping[int, Any]) -> list[tuple[Entry, Any]]:
    """Computed entries and another place that reads them, each once."""
    found: dict[tuple[Entry, Any], None] = {}
    for index, node in enumerate(graph.nodes):
        for entry in node.inputs:
            is_computed = graph.nodes[entry[0]].op != VARIABLE
            if is_computed and place.get(entry[0]) != place.get(index):
                found[entry, place.get(index)] = None
    return list(found)


def _title(place: tuple[str, str, int] | None) -> str:
    return BUILD if place is None else f"{place[0]} {place[2]}"


def _cuts(selection: Selection) -> list[Cut]:
    """Why adjacent subgraphs of a strategy are not one."""
    graph, domains, marks = selection.graph, selection.domains, selection.claims.marks
    names = {node.name: index for index, node in enumerate(graph.nodes)}
    members = {
        each.number: [names[name] for name in each.nodes]
        for each in selection.candidates
        if each.accepted
    }
    owner = {node: number for number, nodes in members.items() for node in nodes}
    pairs = {
        (owner[source], owner[node])
        for node in owner
        for source, _ in graph.nodes[node].inputs
        if owner.get(source, owner[node]) != owner[node]
    }
    limits, cuts = selection.limits, []
    for one, two in sorted(pairs):
        numbers = {marks[node] for node in (*members[one], *members[two])} - {ANY}
        if domains[members[one][0]] != domains[members[two][0]]:
            reason = Unsupported("values of sizes that a match_cast defines lie between", SCOPE)
        elif len(numbers) > 1:
            reason = Unsupported("the strategy numbered them apart", NUMBER)
        elif (through := _detour(graph, {*members[one], *members[two]})) is not None:
            node = graph.nodes[through]
            text = f"together they would feed themselves through {node.op} {source_of(node)!r}"
            reason = Unsupported(text, CYCLE)
        elif limits.max_ops is not None or limits.max_bytes is not None:
            given = f"max_ops={limits.max_ops}, max_bytes={limits.max_bytes}"
            reason = Unsupported(f"together they are over the limit: {given}", LIMIT)
        else:
            reason = Unsupported("joined with a third subgraph they would feed themselves", CYCLE)
        cuts.append(
            Cut(selection.backend, selection.strategy, one, two, reason.kind, reason.reason)
        )
    return cuts


def _detour(graph: Graph, members: set[int]) -> int | None:
    """A node outside on a path that leaves the members and comes back; None without one."""
    predecessors = graph.predecessors()
    last, _ = last_return(readers_of(predecessors), members)
    if last < 0:
        return None
    after: set[int] = set()
    for node in range(min(members), last):
        if node not in members and any(p in members or p in after for p in predecessors[node]):
            after.add(node)
    return next(source for source in predecessors[last] if source in after)


def _counterfactuals(
    selections: Sequence[Selection],
    what_if: Sequence[str | Sequence[str]] | None,
    whole: int,
    rates: Rates,
) -> list[Counterfactual]:
    of_strategy: dict[tuple[str, str], list[_Alternatives]] = {}
    for selection in selections:
        own = selection.backend, selection.strategy
        of_strategy.setdefault(own, []).append(_Alternatives(selection, rates))
    wanted = None
    if what_if is not None:
        wanted = [(each,) if isinstance(each, str) else tuple(each) for each in what_if]
        known = {op for parts in of_strategy.values() for part in parts for op in part.left()}
        for name in (name for each in wanted for name in each if name not in known):
            hint = nearest(name, known) or f"; these do: {', '.join(sorted(known)) or 'none'}"
            raise PartitionError(f"no operator {name!r} stays behind{hint}")
    found = []
    for own, parts in of_strategy.items():
        flops: Counter[str] = Counter()
        for part in parts:
            flops.update(part.left())
        combined = [name for name, _ in flops.most_common(_MOST_COMBINED)]
        groups: list[tuple[str, ...]] = [(name,) for name in flops]
        groups += [each for count in (2, 3, 4) for each in combinations(combined, count)]
        now = [part.with_operators(()) for part in parts]
        for operators in groups if wanted is None else wanted:
            count = sum(part.count(operators) for part in parts)
            if not count:
                continue
            then = [part.with_operators(operators) for part in parts]
            regions, within, nbytes = (
                (sum(before), sum(after)) for before, after in zip(zip(*now), zip(*then))
            )
            moved = [rates.crossing(each, own[0]) for each in nbytes]
            saved = (regions[0] - regions[1]) * rates.call(own[0]) + moved[0] - moved[1]
            shares = within[0] / whole, within[1] / whole
            found.append(
                Counterfactual(*own, tuple(operators), count, regions, shares, nbytes, saved)
            )
    found.sort(key=lambda each: (-each.saved_microseconds, -each.flops_share[1], each.operators))
    return found if wanted is not None else [each for each in found if _helps(each, found)]


def _helps(each: Counterfactual, others: Iterable[Counterfactual]) -> bool:
    """Whether something gets better, and every operator of a combination is needed for it."""
    smaller = (
        (other.saved_microseconds, other.flops_share[1])
        for other in others
        if (other.backend, other.strategy) == (each.backend, each.strategy)
        and {*other.operators} < {*each.operators}
    )
    saved, share = 0.0, each.flops_share[0]
    for more_saved, more_share in smaller:
        saved, share = max(saved, more_saved), max(share, more_share)
    if each.saved_microseconds > saved + 1:
        return True
    return len(each.operators) == 1 and each.flops_share[1] > share + 0.001


class _Alternatives:
    """Regions of one selection, if its strategy supported more operators."""

    def __init__(self, selection: Selection, rates: Rates) -> None:
        self._selection = selection
        self._graph = selection.graph
        self._costs = costs_of(selection.graph)
        names = {node.name: index for index, node in enumerate(self._graph.nodes)}
        self._rejected = {
            tuple(sorted(names[name] for name in each.nodes))
            for each in selection.candidates
            if not each.accepted and each.kind != LIMIT
        }

    def left(self) -> Counter[str]:
        """FLOPs of the operators that could be taken and are not, by name."""
        found: Counter[str] = Counter()
        for index in self._open():
            found[self._graph.nodes[index].op] += self._costs[index].flops
        return found

    def _open(self) -> list[int]:
        domains, nodes = self._selection.domains, self._graph.nodes
        return [
            index
            for index, reason in self._selection.claims.reasons.items()
            if domains[index] is not None and "baton.backend" not in nodes[index].attrs
            if reason.kind != PLACEMENT
        ]

    def count(self, operators: Iterable[str]) -> int:
        """Nodes of some operators that could be taken; 0 if one of the operators has none."""
        counts = Counter(self._graph.nodes[index].op for index in self._open())
        wanted = [counts[name] for name in operators]
        return sum(wanted) if all(wanted) else 0

    def with_operators(self, operators: Iterable[str]) -> tuple[int, int, int]:
        """Number, FLOPs and bytes of the boundaries of the regions with these operators marked."""
        wanted, selection = set(operators), self._selection
        marks = list(selection.claims.marks)
        for index in self._open():
            if self._graph.nodes[index].op in wanted:
                marks[index] = ANY
        domains = [each or 0 for each in selection.domains]
        regions = find_regions(self._graph.predecessors(), marks, domains)
        place: dict[int, int] = {}
        for number, (members, objection) in enumerate(
            bounded(self._graph, regions, selection.limits)
        ):
            if not objection and tuple(members) not in self._rejected:
                place |= dict.fromkeys(members, number)
        flops = sum(self._costs[index].flops for index in place)
        crossing = _crossings(self._graph, place)
        nbytes = sum(entry_bytes(self._graph, *entry) for entry, _ in crossing)
        return len({*place.values()}), flops, nbytes


def _regions(count: int) -> str:
    return f"{count} region{'s' * (count != 1)}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB"
