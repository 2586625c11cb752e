"""Symbols with data-dependent output shapes, cut into pieces that run one after another.

What lies between such operators has static shapes once its inputs are there; each piece is
compiled for the shapes it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import ArrayError
from compiler.mxnet_format.data_dependent import DYNAMIC
from compiler.mxnet_format.graph import VARIABLE, Entry, Graph, Node
from compiler.mxnet_format.operators import outputs_of

if TYPE_CHECKING:
    from .symbol import Symbol

Run = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Piece:
    """A part of a symbol that runs at once."""

    symbol: Symbol | None  # a part of static shape
    node: Node | None  # instead of it, one operator that runs on the host
    # `inputs` and `outputs`: names of values: those of variables, or made up
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut_pieces(symbol: Symbol, whole: bool = True) -> tuple[list[Piece], list[str]]:
    """Cut a symbol before and after its dynamic operators.

    * `whole`: whether what is static between two cuts is one piece; else each operator is one.
    Returns the pieces in the order in which they run, and the names of the outputs.
    """
    graph = symbol.graph
    names = _value_names(graph)
    stage = _stages(graph) if whole else list(range(len(graph.nodes)))
    groups: dict[tuple[int, bool], list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if not node.is_variable:
            groups.setdefault((stage[index], node.op in DYNAMIC), []).append(index)
    read_by: dict[Entry, set[tuple[int, bool]]] = {}
    for index, node in enumerate(graph.nodes):
        for entry in node.inputs:
            reader = (stage[index], node.op in DYNAMIC)
            read_by.setdefault(Entry(entry.node, entry.output), set()).add(reader)
    heads = {Entry(head.node, head.output) for head in graph.heads}
    found: list[Piece] = []
    for key in sorted(groups):
        if key[1]:
            found += [_host_piece(graph, index, names) for index in groups[key]]
        else:
            leaving = [
                entry
                for index in groups[key]
                for entry in _entries(graph, index)
                if entry in heads or read_by.get(entry, set()) - {key}
            ]
            found.append(_static_piece(symbol, groups[key], leaving, names))
    return found, [names[Entry(head.node, head.output)] for head in graph.heads]


def _value_names(graph: Graph) -> dict[Entry, str]:
    taken = {node.name for node in graph.nodes if node.is_variable}
    names: dict[Entry, str] = {}
    for index, node in enumerate(graph.nodes):
        for entry in _entries(graph, index):
            name = node.name if node.is_variable else f"value{index}_{entry.output}"
            while not node.is_variable and name in taken:
                name += "_"
            names[entry] = name
    return names


def _entries(graph: Graph, index: int) -> list[Entry]:
    node = graph.nodes[index]
    return [Entry(index, output) for output in range(outputs_of(node).total)]


def _stages(graph: Graph) -> list[int]:
    """How many dynamic operators come before each node, one after the other."""
    stage: list[int] = []
    for node in graph.nodes:
        before = [stage[e.node] + (graph.nodes[e.node].op in DYNAMIC) for e in node.inputs]
        stage.append(max(before, default=0))
    return stage


def _host_piece(graph: Graph, index: int, names: Mapping[Entry, str]) -> Piece:
    node = graph.nodes[index]
    inputs = tuple(names[Entry(entry.node, entry.output)] for entry in node.inputs)
    return Piece(None, node, inputs, tuple(names[entry] for entry in _entries(graph, index)))


def _static_piece(
    symbol: Symbol, members: Sequence[int], leaving: Sequence[Entry], names: Mapping[Entry, str]
) -> Piece:
    graph = symbol.graph
    nodes: list[Node] = []
    place: dict[Entry, Entry] = {}

    def moved(entry: Entry) -> Entry:
        key = Entry(entry.node, entry.output)
        if key not in place:
            source = graph.nodes[entry.node]
            attrs = dict(source.attrs) if source.is_variable else {}
            place[key] = Entry(len(nodes))
            nodes.append(Node(VARIABLE, names[key], attrs=attrs))
        return place[key]

    for index in members:
        node = graph.nodes[index]
        inputs = [moved(entry) for entry in node.inputs]
        made = (node.op, node.name, inputs, node.attrs)
        place.update({e: Entry(len(nodes), e.output) for e in _entries(graph, index)})
        nodes.append(Node(*made, subgraphs=node.subgraphs, num_outputs=node.num_outputs))
    part = type(symbol)(Graph(nodes, [place[entry] for entry in leaving], dict(graph.attrs)))
    return Piece(part, None, tuple(part.list_inputs()), tuple(names[entry] for entry in leaving))


def run_pieces(
    parts: Sequence[Piece],
    values: dict[str, Any],
    run_static: Callable[[int, Piece, Sequence[Any]], Sequence[Any]],
    to_host: Callable[[Any], np.ndarray],
    from_host: Callable[[np.ndarray], Any],
) -> None:
    """Run pieces in order; their values are added to `values`, those of the variables.

    `run_static` runs a piece of static shape, of which it gets the number too. `to_host` and
    `from_host` convert an array to numpy's and back. Raises ArrayError: a dynamic operator does not
    take its inputs.
    """
    for number, part in enumerate(parts):
        inputs = [values[name] for name in part.inputs]
        if part.node is None:
            results = run_static(number, part, inputs)
        else:
            results = [from_host(each) for each in host_results(part.node, map(to_host, inputs))]
        values.update(zip(part.outputs, results, strict=True))


def host_results(node: Node, arrays: Any) -> list[np.ndarray]:
    """Compute the outputs of a dynamic operator; raise ArrayError for invalid inputs."""
    try:
        return DYNAMIC[node.op](node.attrs, list(arrays))
    except ValueError as error:
        raise ArrayError(f"operator {node.op} (node {node.name!r}): {error}") from error
