"""`mx.viz`: a symbol as a table or a drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .symbol import Symbol

Shape = tuple[int, ...]


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, Shape] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a line for each operator: its output shape, parameters and operands.

    `shape`: data by name, from which other shapes follow; without it, shapes and counts are empty.
    Other variables, except labels, are parameters; the first operator that reads one counts it.
    `positions`: where columns end, as parts of `line_length` characters.
    Raises FrontendError: a name is unknown, or shapes contradict each other.
    """
    shapes = _shapes(symbol, shape) if shape is not None else None
    ends = [int(line_length * part) for part in positions]

    def show(*fields: str) -> None:
        line = ""
        for text, end in zip(fields, ends):
            line = f"{line}{text}"[: end - 1].ljust(end)
        print(line.rstrip())

    print("_" * line_length)
    show("Layer (type)", "Output Shape", "Param #", "Previous Layer")
    print("=" * line_length)
    nodes, total = symbol.graph.nodes, 0
    counted = {*(shape or ()), *(name for name in symbol.list_inputs() if name.endswith("label"))}
    for node in nodes:
        if node.is_variable:
            continue
        read = [nodes[entry.node] for entry in node.inputs]
        before = [each.name for each in read if not each.is_variable or each.name in (shape or ())]
        new = {each.name for each in read if each.is_variable} - counted
        counted |= new
        count = sum(math.prod(shapes[name]) for name in new) if shapes is not None else 0
        total += count
        extents = "x".join(map(str, shapes[f"{node.name}_output"][1:])) if shapes else ""
        show(f"{node.name} ({node.op})", extents, str(count) if shapes else "", ", ".join(before))
    print("=" * line_length)
    if shapes is not None:
        print(f"Total params: {total}")
        print("_" * line_length)


def _shapes(symbol: Symbol, known: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of all variables and first outputs."""
    inner = symbol.get_internals()
    _, outputs, _ = inner.infer_shape(**known)
    found = dict(zip(inner.list_outputs(), outputs))
    for name in [name for name in found if name.endswith("_output0")]:
        found.setdefault(name[:-1], found[name])
    return found


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Shape] | None = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """Draw a symbol as a `graphviz.Digraph`, which has `source` and `render()`.

    `hide_weights`: leave out variables, except those in `shape` or without a parameter's suffix.
    `node_attrs`: Graphviz attributes of all nodes.
    Raises RelayError: the package graphviz is not installed.
    """
    from compiler.relay.viz.dot import DotGraph
    from compiler.relay.viz.interface import VizEdge, VizNode

    shapes = _shapes(symbol, shape) if shape is not None else {}
    drawing = DotGraph(title, node_attr={"fixedsize": "false", **(node_attrs or {})})
    drawing.digraph.format = save_format
    nodes = symbol.graph.nodes
    endings: tuple[str, ...] = ("_weight", "_bias", "_beta", "_gamma", "_moving_var")
    endings += ("_moving_mean", "_running_var", "_running_mean", ".weight", ".bias")
    hidden = {
        index
        for index, node in enumerate(nodes)
        if hide_weights and node.is_variable and node.name.endswith(endings)
        if node.name not in (shape or ())
    }
    for index, node in enumerate(nodes):
        if index in hidden:
            continue
        extents = shapes.get(node.name if node.is_variable else f"{node.name}_output")
        detail = node.name if extents is None else f"{node.name}\n{extents}"
        drawing.node(VizNode(str(index), "" if node.is_variable else node.op, detail))
        for source in dict.fromkeys(entry.node for entry in node.inputs):
            if source not in hidden:
                drawing.edge(VizEdge(str(source), str(index)))
    return drawing.digraph
