"""Visualization as text trees: `tvm.contrib.relay_viz.terminal`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from ...support.atomic_file import write_file
from .interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode, VizParser


class TermVizParser(VizParser):
    """`DefaultVizParser` with separate nodes for operators and global functions."""

    def __init__(self) -> None:
        self._default = DefaultVizParser()

    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """See `VizParser.get_node_edges`."""
        identity = node_to_id[node]
        read: list[Any] = []
        if isinstance(node, tvm.ir.Op):
            made = VizNode(identity, str(node.name), "")
        elif isinstance(node, tvm.ir.GlobalVar):
            made = VizNode(identity, "GlobalVar", str(node.name_hint))
        elif isinstance(node, relax.Call):
            made, read = VizNode(identity, "Call", ""), [node.op, *node.args]
        elif isinstance(node, relax.If):
            made = VizNode(identity, "If", "(cond, true, false)")
            read = [node.cond]
        elif isinstance(node, relax.Function):
            names = ", ".join(str(parameter.name) for parameter in node.params)
            made, read = VizNode(identity, "Func", f"[{names}]"), [node.body.body]
        else:
            return self._default.get_node_edges(node, relay_param, node_to_id)
        return made, [VizEdge(node_to_id[each], identity) for each in read]


class TermGraph(VizGraph):
    """A graph as a text tree; shared nodes are repeated once below each consumer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, VizNode] = {}
        self._read: dict[str, list[str]] = {}
        self._last = ""

    def node(self, viz_node: VizNode) -> None:
        """Add a node; the last node is the root."""
        self._nodes[viz_node.identity] = viz_node
        self._read.setdefault(viz_node.identity, [])
        self._last = viz_node.identity

    def edge(self, viz_edge: VizEdge) -> None:
        self._read.setdefault(viz_edge.end, []).append(viz_edge.start)

    def render(self) -> str:
        """Format the tree as text."""
        lines = [f"@{self._name}({_line(self._nodes[self._last].detail)})"]
        seen: set[tuple[str, str]] = set()
        # Expressions can exceed Python's stack depth.
        stack = [("", self._last, "")]
        while stack:
            indent, identity, text = stack.pop()
            if text:
                lines.append(text)
            if (indent, identity) in seen:
                continue
            seen.add((indent, identity))
            shown = [each for each in self._read[identity] if each in self._nodes]
            below = []
            for number, each in enumerate(shown):
                last = number == len(shown) - 1
                node = self._nodes[each]
                text = f"{indent}{'`--' if last else '|--'}{node.type_name} {_line(node.detail)}"
                below.append((indent + ("   " if last else "|  "), each, text))
            stack += reversed(below)
        return "\n".join(lines)


def _line(detail: str) -> str:
    return detail.replace("\n", ", ")


class TermPlotter(Plotter):
    """Prints the trees of functions, or writes them to a text file."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, TermGraph] = {}

    def create_graph(self, name: str) -> TermGraph:
        """Create the graph of the function with this name."""
        self._name_to_graph[name] = TermGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: str | None) -> None:
        """Write to the file, or print if no filename is given."""
        text = "\n".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text)
        else:
            write_file(filename, text)
