"""Topological order of the nodes of ONNX graphs, which onnxruntime does not require of a model."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator
from typing import Any

import onnx

from compiler.errors import FrontendError

from .node_names import describe


def names_read(node: onnx.NodeProto) -> set[str]:
    """Names of the values that a node, or a graph in its attributes, takes from around the node."""
    names = set(filter(None, node.input))
    for graph in _graphs(node):
        names |= _outer_names(graph)
    return names


def sorted_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself if its nodes are in topological order, else a sorted copy.

    Raises FrontendError: nodes of a graph form a cycle.
    """
    if all(_order(holder) is None for holder in _holders(model)):
        return model
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for holder in _holders(copied):
        ordered = [holder.node[index] for index in _order(holder) or range(len(holder.node))]
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
    return read.union(*map(names_read, graph.node)) - own


def _holders(model: onnx.ModelProto) -> list[Any]:
    """The model's graphs and functions; inner graphs come before outer ones."""
    found = [model.graph, *model.functions]
    for holder in found:  # grows
        found += [graph for node in holder.node for graph in _graphs(node)]
    return found[::-1]


def _order(holder: onnx.GraphProto | onnx.FunctionProto) -> list[int] | None:
    """Indices of the nodes in topological order; None if the nodes are in order.

    Values that are defined twice are left to the checks of names.
    """
    given = {name if isinstance(name, str) else name.name for name in holder.input}
    makers = {
        name: index
        for index, node in enumerate(holder.node)
        for name in node.output
        if name and name not in given
    }
    sources = {
        index: {makers[name] for name in names_read(node) if name in makers}
        for index, node in enumerate(holder.node)
    }
    if all(source < index for index, found in sources.items() for source in found):
        return None
    try:
        return list(graphlib.TopologicalSorter(sources).static_order())
    except graphlib.CycleError as error:
        node = holder.node[error.args[1][0]]
        raise FrontendError(f"{describe(node)} depends on its own result") from error
