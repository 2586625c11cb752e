"""Topological order of the nodes of ONNX graphs, which onnxruntime does not require of a model."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import onnx


def names_read(node: onnx.NodeProto) -> set[str]:
    """Names of the values that a node, or a graph in its attributes, takes from around the node."""
    names = set(filter(None, node.input))
    for graph in _graphs(node):
        names |= _outer_names(graph)
    return names


def sorted_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself if its nodes are in topological order, else a sorted copy.

    Nodes that are in a cycle, or depend on one, keep their order after the others.
    """
    if all(_order(holder.node) is None for holder in _holders(model)):
        return model
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for holder in _holders(copied):
        order = _order(holder.node)
        if order is not None:
            ordered = [holder.node[index] for index in order]
            del holder.node[:]
            holder.node.extend(ordered)
    return copied


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for entry in node.attribute:
        yield from [entry.g] if entry.type == onnx.AttributeProto.GRAPH else entry.graphs


def _outer_names(graph: onnx.GraphProto) -> set[str]:
    own = {value.name for value in (*graph.input, *graph.initializer)}
    own.update(tensor.values.name for tensor in graph.sparse_initializer)
    own.update(name for node in graph.node for name in node.output)
    read = {value.name for value in graph.output}
    for node in graph.node:
        read |= names_read(node)
    return read - own


def _holders(model: onnx.ModelProto) -> Iterator[Any]:
    """The model's graphs and functions; inner graphs come before outer ones."""
    for holder in (*model.functions, model.graph):
        yield from _inner_first(holder)


def _inner_first(holder: Any) -> Iterator[Any]:
    for node in holder.node:
        for graph in _graphs(node):
            yield from _inner_first(graph)
    yield holder


def _order(nodes: Sequence[onnx.NodeProto]) -> list[int] | None:
    """Indices in a stable topological order; None if the nodes are in order."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    sources = [{makers[name] for name in names_read(node) if name in makers} for node in nodes]
    if all(source < index for index, found in enumerate(sources) for source in found):
        return None
    readers: dict[int, list[int]] = {}
    for index, found in enumerate(sources):
        for source in found:
            readers.setdefault(source, []).append(index)
    ready = [index for index, found in enumerate(sources) if not found]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers.get(order[-1], ()):
            sources[reader].discard(order[-1])
            if not sources[reader]:
                heapq.heappush(ready, reader)
    return order + sorted(set(range(len(nodes))) - set(order))
