"""Options that every backend has: bounds on size and number of subgraphs, and the like.

They are options of `partition` like those that a backend reads itself, as numbers or as text:

* `min_ops`: smaller subgraphs go back to `main`.
* `max_ops`, `max_bytes`: larger subgraphs are split. Bytes are those of the distinct tensors that
  a subgraph touches: its inputs, parameters and constants, and what its operators yield.
* `max_subgraphs`: of the candidates of one strategy only that many, the largest, are offered.
* `dedup_subgraph`: identical subgraphs share one function.
* `on_compile_error`: "raise", "back" (to `main`) or "split" (halve and try again) is what the
  build does with a subgraph that does not compile.
* `callback_timeout`: seconds after which a callback that has not returned is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compiler.backends.graph import Entry, Graph
from compiler.errors import PartitionError

from .region_growing import find_root

ON_COMPILE_ERROR = ("raise", "back", "split")

_BITS = {"bool": 8, "float4_e2m1fn": 4}
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Limits:
    """The options that Baton reads itself; None where an option is not given."""

    min_ops: int = 1
    max_ops: int | None = None
    max_bytes: int | None = None
    max_subgraphs: int | None = None
    dedup_subgraph: bool = False
    on_compile_error: str = "raise"
    callback_timeout: float | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Limits:
        """Read them from `partition` options; PartitionError if a value has the wrong kind."""
        policy = options.get("on_compile_error", "raise")
        if policy not in ON_COMPILE_ERROR:
            raise PartitionError(
                f"on_compile_error is {policy!r}; it must be one of {', '.join(ON_COMPILE_ERROR)}"
            )
        flag = options.get("dedup_subgraph", "False").lower()
        if flag not in ("true", "false", "1", "0"):
            raise PartitionError(f"dedup_subgraph is {flag!r}; it must be True or False")
        return cls(
            min_ops=_number(options, "min_ops", int) or 1,
            max_ops=_number(options, "max_ops", int),
            max_bytes=_number(options, "max_bytes", int),
            max_subgraphs=_number(options, "max_subgraphs", int),
            dedup_subgraph=flag in ("true", "1"),
            on_compile_error=policy,
            callback_timeout=_number(options, "callback_timeout", float),
        )


def bounded(
    graph: Graph, regions: Sequence[Sequence[int]], limits: Limits
) -> list[tuple[list[int], str]]:
    """Split regions, node ids ascending in each, into candidates within the limits.

    Contracting all regions leaves an acyclic graph; so does contracting all candidates, which are
    in the order of their first members. `reason` is "" for those within the limits and says for all
    others why they are not.
    """
    sizes: dict[Entry, int | None] = {}
    if limits.max_bytes is not None:
        for node, own in enumerate(graph.nodes):
            for output, kind in enumerate(own.types):
                sizes[node, output] = tensor_bytes(*kind, graph.bounds)
    found: list[tuple[list[int], str]] = []
    for region in regions:
        for piece in _pieces(graph, list(region), sizes, limits):
            found.append((piece, _objection(graph, piece, sizes, limits)))
    found.sort(key=lambda candidate: candidate[0][0])
    if limits.max_subgraphs is None:
        return found
    fitting = [index for index, (_, reason) in enumerate(found) if not reason]
    fitting.sort(key=lambda index: (-len(found[index][0]), index))
    for index in fitting[limits.max_subgraphs :]:
        reason = f"max_subgraphs={limits.max_subgraphs}: as many are no smaller"
        found[index] = (found[index][0], reason)
    return found


def _touched(graph: Graph, node: int) -> list[Entry]:
    """Entries that a node reads or yields."""
    own = graph.nodes[node]
    return [*own.inputs, *((node, output) for output in range(len(own.types)))]


def _pieces(
    graph: Graph, region: list[int], sizes: Mapping[Entry, int | None], limits: Limits
) -> list[list[int]]:
    """Connected parts of a region, each within `max_ops` and `max_bytes` if that is possible.

    The region's nodes are taken in a topological order and cut into runs, so that data between
    parts flow from earlier runs to later ones only: the parts can't feed each other in a circle,
    nor close one through nodes outside, through which no part of the region reads another.
    """
    if limits.max_ops is None and limits.max_bytes is None:
        return [region]
    most = limits.max_ops or len(region)
    pieces: list[list[int]] = []
    run: list[int] = []
    touched: set[Entry] = set()
    total = 0
    for node in _depth_first(graph, region):
        new = set(_touched(graph, node)) - touched
        more = sum(sizes.get(entry) or 0 for entry in new)
        too_large = limits.max_bytes is not None and total + more > limits.max_bytes
        if run and (len(run) == most or too_large):
            pieces += _connected(graph, run)
            run, touched, total = [], set(), 0
            new = set(_touched(graph, node))
            more = sum(sizes.get(entry) or 0 for entry in new)
        run.append(node)
        touched |= new
        total += more
    return pieces + _connected(graph, run)


def _depth_first(graph: Graph, region: list[int]) -> list[int]:
    """A topological order that stays with a chain as long as it can."""
    inside = set(region)
    missing: dict[int, int] = {}
    readers: dict[int, list[int]] = {node: [] for node in region}
    for node in region:
        sources = {source for source, _ in graph.nodes[node].inputs if source in inside}
        missing[node] = len(sources)
        for source in sources:
            readers[source].append(node)
    ready = [node for node in reversed(region) if not missing[node]]
    order: list[int] = []
    while ready:
        node = ready.pop()
        order.append(node)
        for reader in reversed(readers[node]):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


def _connected(graph: Graph, run: list[int]) -> list[list[int]]:
    parent = {node: node for node in run}

    for node in run:
        for source, _ in graph.nodes[node].inputs:
            if source in parent:
                one, two = find_root(parent, source), find_root(parent, node)
                parent[max(one, two)] = min(one, two)
    parts: dict[int, list[int]] = {}
    for node in sorted(run):
        parts.setdefault(find_root(parent, node), []).append(node)
    return list(parts.values())


def _objection(
    graph: Graph, piece: list[int], sizes: Mapping[Entry, int | None], limits: Limits
) -> str:
    if len(piece) < limits.min_ops:
        return f"min_ops={limits.min_ops}: it has {len(piece)}"
    if limits.max_bytes is None:
        return ""
    nbytes = [sizes.get(entry) for entry in {e for node in piece for e in _touched(graph, node)}]
    if None in nbytes:
        return f"max_bytes={limits.max_bytes}: the size of one of its tensors is unknown"
    total = sum(size or 0 for size in nbytes)
    return f"max_bytes={limits.max_bytes}: it touches {total}" if total > limits.max_bytes else ""


def tensor_bytes(shape: str, dtype: str, bounds: Mapping[str, int]) -> int | None:
    """Bytes of a tensor, with the largest extents of symbols that have bounds; None if unknown."""
    parts = [part.strip() for part in shape.strip("[]").split(",") if part.strip()]
    parts = [str(bounds.get(part, part)) for part in parts]
    digits = "".join(filter(str.isdigit, dtype.split("_")[0]))
    bits = _BITS.get(dtype) or (int(digits) if digits else 0)
    if not shape or not bits or not all(part.isdigit() for part in parts):
        return None
    return (math.prod(map(int, parts)) * bits + 7) // 8


def _number(
    options: Mapping[str, str], name: str, kind: Callable[[str], _Number]
) -> _Number | None:
    text = options.get(name)
    if text is None or text == "None":
        return None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not 0 < value < math.inf:
        what = "a whole number" if kind is int else "a number"
        raise PartitionError(f"{name} is {text!r}; it must be {what} above 0")
    return value
