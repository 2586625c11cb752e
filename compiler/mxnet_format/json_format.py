"""Symbol JSON of every MXNet version, read into a `Graph` and written."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from compiler.errors import FrontendError

from .graph import VARIABLE, Entry, Graph, Node
from .operators import MOST_OUTPUTS, input_names, is_call, outputs_of

_GRAPH_KEYS = frozenset(["nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"])
_NODE_KEYS = frozenset(
    [
        *("op", "name", "inputs", "attrs", "attr", "param", "control_deps", "subgraphs"),
        "backward_source_id",
    ]
)
_DEEPEST = 32
"""Subgraphs nested deeper than this are taken for damage."""


def read_json(text: str | bytes, where: str = "the symbol") -> Graph:
    """Read symbol JSON, upgraded to today's form; every node comes after the nodes it reads.

    Raises FrontendError, whose message names `where`, for text that is not JSON, not a symbol or
    contradictory.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        data = json.loads(decoded, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise FrontendError(f"{where} is not JSON: {error or type(error).__name__}") from error
    graph = _read_graph(data, where, 0)
    upgrade(graph)
    return graph.ordered()


def write_json(graph: Graph) -> str:
    """Write a graph as symbol JSON; nodes that no output needs are left out."""
    data = graph_data(graph.ordered())
    attrs = {"mxnet_version": ("int", WRITTEN_VERSION), **graph.attrs}
    data["attrs"] = {key: list(attrs[key]) for key in sorted(attrs)}
    return json.dumps(data, indent=2)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _read_graph(data: Any, where: str, depth: int) -> Graph:
    if depth > _DEEPEST:
        raise FrontendError(f"{where}: subgraphs are nested more than {_DEEPEST} deep")
    _check_keys(data, _GRAPH_KEYS, ("nodes", "heads", "arg_nodes"), where)
    items = _list(data["nodes"], f"{where}: nodes")
    nodes = [_read_node(item, f"{where}, node {i}", depth) for i, item in enumerate(items)]
    for node in nodes:
        named = f"{where}, node {node.name!r} (operator {node.op})"
        for entry in node.inputs:
            _check_node(entry.node, nodes, f"{named}: an input")
        for index in node.control_deps:
            _check_node(index, nodes, f"{named}: control_deps")
    heads = _entries(data["heads"], f"{where}: heads")
    if not heads:
        raise FrontendError(f"{where}: heads is empty, so the symbol has no outputs")
    for head in heads:
        _check_node(head.node, nodes, f"{where}: heads")
    for index in _list(data["arg_nodes"], f"{where}: arg_nodes"):
        _check_node(_natural(index, f"{where}: arg_nodes"), nodes, f"{where}: arg_nodes")
        if not nodes[index].is_variable:
            raise FrontendError(f"{where}: arg_nodes names {nodes[index].name!r}, no variable")
    if "node_row_ptr" in data:
        _set_output_counts(nodes, _list(data["node_row_ptr"], f"{where}: node_row_ptr"), where)
    _check_output_indices(nodes, heads, where)
    return Graph(nodes, heads, _graph_attrs(data.get("attrs", {}), where))


def _read_node(data: Any, where: str, depth: int) -> Node:
    _check_keys(data, _NODE_KEYS, ("op", "name", "inputs"), where)
    op = _string(data["op"], f"{where}: op")
    name = _string(data["name"], f"{where}: name")
    where = f"{where} {name!r}"
    inputs = _entries(data["inputs"], f"{where}: inputs")
    if op == VARIABLE and inputs:
        raise FrontendError(f"{where}: a variable can't have inputs")
    control = [
        _natural(item, f"{where}: control_deps")
        for item in _list(data.get("control_deps", []), f"{where}: control_deps")
    ]
    subgraphs = [
        _read_graph(item, f"{where}, subgraph {i}", depth + 1)
        for i, item in enumerate(_list(data.get("subgraphs", []), f"{where}: subgraphs"))
    ]
    for graph in subgraphs:
        graph.reachable()  # rejects cycles; the order stays, outer inputs are matched by it
    return Node(op, name, inputs, _node_attrs(data, where), control, subgraphs)


def _node_attrs(data: dict[str, Any], where: str) -> dict[str, str]:
    """Merge the three spellings: `attrs` or `attr`, whichever comes last, over `param`."""
    merged = dict(_strings(data.get("param", {}), f"{where}: param"))
    spellings = [key for key in data if key in ("attrs", "attr")]
    for key in spellings:
        strings = _strings(data[key], f"{where}: {key}")
        if key == spellings[-1]:
            merged.update(strings)
    return merged


def _graph_attrs(data: Any, where: str) -> dict[str, tuple[str, Any]]:
    if not isinstance(data, dict):
        raise FrontendError(f"{where}: attrs is not an object")
    attrs = {}
    for key, item in data.items():
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
            raise FrontendError(f"{where}: graph attribute {key!r} is no [type, value] pair")
        kind, value = item
        if not _fits(kind, value):
            raise FrontendError(
                f"{where}: graph attribute {key!r} of type {kind!r} has the value {value!r}; types "
                "are int, str, list_int and list_str"
            )
        attrs[key] = (kind, value)
    return attrs


def _fits(kind: str, value: Any) -> bool:
    if kind in ("list_int", "list_str"):
        inner = kind.removeprefix("list_")
        return isinstance(value, list) and all(_fits(inner, item) for item in value)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return kind == "str" and isinstance(value, str)


def _set_output_counts(nodes: list[Node], pointers: list[Any], where: str) -> None:
    starts = [_natural(item, f"{where}: node_row_ptr") for item in pointers]
    if len(starts) != len(nodes) + 1 or starts[0] != 0:
        raise FrontendError(
            f"{where}: node_row_ptr must start with 0 and have {len(nodes) + 1} items, "
            f"one more than there are nodes"
        )
    for node, start, stop in zip(nodes, starts, starts[1:]):
        if not 0 < stop - start <= MOST_OUTPUTS:
            raise FrontendError(
                f"{where}: node_row_ptr gives node {node.name!r} {stop - start} outputs"
            )
        node.num_outputs = stop - start


def _check_output_indices(nodes: list[Node], heads: list[Entry], where: str) -> None:
    """Reject outputs that nodes lack; without `node_row_ptr` they have those that are read."""
    counts = [max(outputs_of(node).total, node.num_outputs or 1) for node in nodes]
    readers = [("heads", heads)] + [(f"node {node.name!r}", node.inputs) for node in nodes]
    for reader, entries in readers:
        for index, output, _ in entries:
            node = nodes[index]
            if output < counts[index]:
                continue
            known = node.num_outputs is not None or node.is_variable or is_call(node)
            if known or output >= MOST_OUTPUTS:
                raise FrontendError(
                    f"{where}: {reader} reads output {output} of node {node.name!r}, "
                    f"which has {counts[index]}"
                )
            counts[index] = output + 1
    for node, count in zip(nodes, counts):
        if node.num_outputs is None and count > outputs_of(node).total:
            node.num_outputs = count


def _check_keys(data: Any, known: frozenset[str], needed: tuple[str, ...], where: str) -> None:
    if not isinstance(data, dict):
        raise FrontendError(f"{where} is not a JSON object")
    missing = [key for key in needed if key not in data]
    if missing:
        raise FrontendError(f"{where} lacks the key {missing[0]!r}")
    unknown = sorted(set(data) - known)
    if unknown:
        raise FrontendError(f"{where} has the unknown key {unknown[0]!r}")


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list):
        raise FrontendError(f"{where} is not a list")
    return data


def _string(data: Any, where: str) -> str:
    if not isinstance(data, str):
        raise FrontendError(f"{where} is not a string")
    return data


def _strings(data: Any, where: str) -> dict[str, str]:
    if not isinstance(data, dict):
        raise FrontendError(f"{where} is not an object")
    for key, value in data.items():
        _string(value, f"{where}: the value {value!r} of {key!r}")
    return data


def _natural(data: Any, where: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or data < 0:
        raise FrontendError(f"{where}: {data!r} is not an index")
    return data


def _entries(data: Any, where: str) -> list[Entry]:
    entries = []
    for item in _list(data, where):
        if not isinstance(item, list) or len(item) not in (2, 3):
            raise FrontendError(f"{where}: {item!r} is no [node, output, version] triple")
        entries.append(Entry(*(_natural(number, where) for number in item)))
    return entries


def _check_node(index: int, nodes: list[Node], where: str) -> None:
    if index >= len(nodes):
        raise FrontendError(f"{where} refers to node {index}, but there are {len(nodes)}")


def graph_data(graph: Graph) -> dict[str, Any]:
    """A graph as JSON data, nodes in the order they have, without the graph's attributes."""
    pointers = [0]
    for node in graph.nodes:
        pointers.append(pointers[-1] + (node.num_outputs or outputs_of(node).total))
    return {
        "nodes": [_write_node(node) for node in graph.nodes],
        "arg_nodes": [i for i, node in enumerate(graph.nodes) if node.is_variable],
        "node_row_ptr": pointers,
        "heads": [list(head) for head in graph.heads],
    }


def _write_node(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"op": node.op, "name": node.name}
    if node.attrs:
        data["attrs"] = {key: node.attrs[key] for key in sorted(node.attrs)}
    data["inputs"] = [list(entry) for entry in node.inputs]
    if node.control_deps:
        data["control_deps"] = list(node.control_deps)
    if node.subgraphs:
        data["subgraphs"] = [graph_data(graph) for graph in node.subgraphs]
    return data


WRITTEN_VERSION = 10901
"""`mxnet_version` of the files that are written."""

_UNVERSIONED = 800
"""Version assumed for a file without one: 0.8.0."""

_ANNOTATIONS = (
    "lr_mult",
    "wd_mult",
    "ctx_group",
    "force_mirroring",
    "mirror_stage",
    "profiler_scope",
)
"""Annotations that old files write without the underscores."""


def upgrade(graph: Graph) -> None:
    """Upgrade a graph in place, by the steps that its version needs."""
    version = _version(graph)
    if version < WRITTEN_VERSION:
        for node in graph.nodes:
            _frame_annotations(graph, node)
        graph.attrs["mxnet_version"] = ("int", WRITTEN_VERSION)
    if version < 900:
        for node in list(graph.nodes):
            _add_missing_inputs(graph, node)
    if version < 905:
        for node in graph.nodes:
            # There -1 meant all elements; today it means the last axis.
            if node.op in ("argmin", "argmax") and node.attrs.get("axis") == "-1":
                del node.attrs["axis"]


def _version(graph: Graph) -> int:
    kind, value = graph.attrs.get("mxnet_version", ("int", _UNVERSIONED))
    return value if kind == "int" else _UNVERSIONED


def _frame_annotations(graph: Graph, node: Node) -> None:
    """`lr_mult` becomes `__lr_mult__`; `weight_lr_mult` goes to the variable of that input."""
    names = input_names(node)
    for key in list(node.attrs):
        for annotation in _ANNOTATIONS:
            framed = f"__{annotation}__"
            if key == annotation:
                node.attrs[framed] = node.attrs.pop(key)
            elif key.endswith("_" + annotation) and not key.startswith("__"):
                variable = _input_variable(graph, node, names, key.removesuffix("_" + annotation))
                if variable is not None:
                    variable.attrs[framed] = node.attrs.pop(key)
            else:
                continue
            break


def _input_variable(graph: Graph, node: Node, names: tuple[str, ...], name: str) -> Node | None:
    position = names.index(name) if name in names else len(node.inputs)
    if position >= len(node.inputs):
        return None
    source = graph.nodes[node.inputs[position].node]
    return source if source.is_variable else None


def _add_missing_inputs(graph: Graph, node: Node) -> None:
    """Append the inputs that files of before 0.9.0 left out, such as a batch norm's statistics."""
    for name in input_names(node)[len(node.inputs) :]:
        node.inputs.append(Entry(len(graph.nodes)))
        full = f"{node.name}_{name}" if node.name else name
        graph.nodes.append(Node(VARIABLE, full, attrs=dict(node.attrs)))
