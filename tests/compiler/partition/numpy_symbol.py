"""A symbol of simple operators computed with numpy, its subgraph nodes by their bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.mxnet.symbol import Graph, Symbol

Arrays = list[np.ndarray]

OPERATORS: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "cos": np.cos,
    "elemwise_add": np.add,
    "elemwise_mul": np.multiply,
    "elemwise_sub": np.subtract,
    "exp": np.exp,
    "sin": np.sin,
    "tanh": np.tanh,
}


def evaluate(symbol: Symbol, values: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs; variables of the symbol have their values by name."""
    graph = symbol.graph
    return run(graph, [values[node.name] for node in graph.variables()])


def run(graph: Graph, variables: Sequence[np.ndarray]) -> Arrays:
    """The outputs of a graph whose variables, in node order, have these values."""
    rest = iter(variables)
    results: list[Arrays] = []
    for node in graph.nodes:
        if node.is_variable:
            results.append([next(rest)])
            continue
        inputs = [results[entry.node][entry.output] for entry in node.inputs]
        if node.subgraphs:
            results.append(run(node.subgraphs[0], inputs))
        elif node.op == "Concat":
            results.append([np.concatenate(inputs, int(node.attrs["dim"]))])
        elif node.op == "SliceChannel":
            count, axis = int(node.attrs["num_outputs"]), int(node.attrs["axis"])
            results.append(np.split(inputs[0], count, axis))
        else:
            results.append([OPERATORS[node.op](*inputs)])
    assert next(rest, None) is None, "more values than variables"
    return [results[head.node][head.output] for head in graph.heads]
