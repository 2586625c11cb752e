"""Graphs that are put together operator by operator: `sym.FullyConnected(x, num_hidden=4) + 1`.

Every operator that the importer knows can be called by MXNet's name of it. Graphs that it reads
come first or by the operator's names of its inputs; those that are missing become variables
`<name>_weight`, `<name>_bias`, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.mxnet_format.data_dependent import DYNAMIC
from compiler.mxnet_format.graph import VARIABLE, Entry, Graph, Node
from compiler.mxnet_format.operators import input_names, operator_of, outputs_of

from ..name import new_name


def merge_graphs(graphs: Sequence[Graph]) -> Graph:
    """One graph with the outputs of several; equal nodes (op, name, attributes, inputs) merge."""
    nodes: list[Node] = []
    heads: list[Entry] = []
    attrs: dict[str, Any] = {}
    place: dict[Any, int] = {}
    for graph in graphs:
        attrs |= graph.attrs
        moved: list[int] = []
        for node in graph.nodes:
            inputs = [entry._replace(node=moved[entry.node]) for entry in node.inputs]
            deps = [moved[index] for index in node.control_deps]
            key = (
                *(node.op, node.name, tuple(inputs), tuple(deps)),
                *(tuple(sorted(node.attrs.items())), tuple(map(id, node.subgraphs))),
            )
            if key not in place:
                place[key] = len(nodes)
                made = (node.op, node.name, inputs, node.attrs, deps, node.subgraphs)
                nodes.append(Node(*made, node.num_outputs))
            moved.append(place[key])
        heads += [head._replace(node=moved[head.node]) for head in graph.heads]
    return Graph(nodes, heads, attrs)


def replace_variables(graph: Graph, given: Mapping[str, Graph]) -> Graph:
    """The graph with variables, by name, replaced by graphs of one output."""
    read = merge_graphs(list(given.values()))
    replaced = dict(zip(given, read.heads))
    nodes = list(read.nodes)
    moved: list[Entry] = []  # of output 0 of each node
    for node in graph.nodes:
        if node.is_variable and node.name in replaced:
            moved.append(replaced[node.name])
            continue
        inputs = [_moved(moved, entry) for entry in node.inputs]
        deps = [moved[index].node for index in node.control_deps]
        made = (node.op, node.name, inputs, node.attrs, deps, node.subgraphs)
        moved.append(Entry(len(nodes)))
        nodes.append(Node(*made, node.num_outputs))
    return Graph(nodes, [_moved(moved, head) for head in graph.heads], graph.attrs)


def _moved(moved: Sequence[Entry], entry: Entry) -> Entry:
    start = moved[entry.node]
    return start if entry.output == 0 else start._replace(output=entry.output)


def apply_operator(
    op: str, inputs: Sequence[Graph | None], attrs: Mapping[str, str], name: str, hint: str = ""
) -> Graph:
    """The graph of one operator on others; inputs that are None become variables."""
    label = new_name(name, hint or op.lower())
    names = input_names(Node(op, op, attrs=dict(attrs)))
    variables = [
        Graph([Node(VARIABLE, f"{label}_{names[index]}")], [Entry(0)]) if each is None else each
        for index, each in enumerate(inputs)
    ]
    read = merge_graphs(variables)
    node = Node(op, label, read.heads, dict(attrs))
    outputs = [Entry(len(read.nodes), index) for index in range(outputs_of(node).visible)]
    return Graph([*read.nodes, node], outputs, read.attrs)


def known_operator(name: str) -> str:
    """The operator of a name; raises AttributeError where the importer knows none."""
    from compiler.relay.frontend.mxnet.ops import is_known

    op = operator_of(name)
    if not (is_known(op) or op in DYNAMIC) or name.startswith("__"):
        raise AttributeError(f"there is no operator {name!r}")
    return op
