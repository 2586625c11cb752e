"""Visualization with Graphviz: `tvm.contrib.relay_viz.dot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import RelayError
from .interface import DefaultVizParser, Plotter, VizEdge, VizGraph, VizNode

Attributes = Mapping[str, str]


class DotVizParser(DefaultVizParser):
    """Default parser, under the name that matches `DotPlotter`."""


class DotGraph(VizGraph):
    """A function as a cluster of a Graphviz graph."""

    def __init__(
        self,
        name: str,
        graph_attr: Attributes | None = None,
        node_attr: Attributes | None = None,
        edge_attr: Attributes | None = None,
        get_node_attr: Callable[[VizNode], Attributes] | None = None,
    ) -> None:
        self._name = name
        self._get_node_attr = get_node_attr
        self.digraph = _graphviz().Digraph(
            name=f"cluster_{name}",
            graph_attr={"label": name, **(graph_attr or {})},
            node_attr={"shape": "box", **(node_attr or {})},
            edge_attr=dict(edge_attr or {}),
        )

    def node(self, viz_node: VizNode) -> None:
        """Add a node with its type above its details."""
        text = "\n".join(part for part in (viz_node.type_name, viz_node.detail) if part)
        escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
        attributes = self._get_node_attr(viz_node) if self._get_node_attr else {}
        self.digraph.node(
            f"{self._name}_{viz_node.identity}", escaped, _attributes=dict(attributes)
        )

    def edge(self, viz_edge: VizEdge) -> None:
        self.digraph.edge(f"{self._name}_{viz_edge.start}", f"{self._name}_{viz_edge.end}")


class DotPlotter(Plotter):
    """Draws a module with Graphviz.

    `graph_attr`, `node_attr`, `edge_attr`: graphviz attributes of the function clusters, and of all
    nodes and edges. `get_node_attr`: maps a node to additional Graphviz attributes.
    """

    def __init__(
        self,
        graph_attr: Attributes | None = None,
        node_attr: Attributes | None = None,
        edge_attr: Attributes | None = None,
        get_node_attr: Callable[[VizNode], Attributes] | None = None,
    ) -> None:
        self._options = (graph_attr, node_attr, edge_attr, get_node_attr)
        self._name_to_graph: dict[str, DotGraph] = {}

    def create_graph(self, name: str) -> DotGraph:
        """Create the graph of the function with this name."""
        self._name_to_graph[name] = DotGraph(name, *self._options)
        return self._name_to_graph[name]

    def source(self) -> str:
        """Graphviz source of the picture."""
        return str(self._whole().source)

    def render(self, filename: str | None = None) -> None:
        """Write Graphviz source and `filename`.pdf; RelayError, after the source, without `dot`."""
        graphviz = _graphviz()
        path = filename or "relay_viz"
        try:
            self._whole().render(path)
        except graphviz.ExecutableNotFound as error:
            raise RelayError(
                f"wrote {path}, but to draw it Graphviz's program `dot` is needed; install "
                "graphviz, or use TermPlotter"
            ) from error

    def _whole(self) -> Any:
        whole = _graphviz().Digraph()
        for graph in self._name_to_graph.values():
            whole.subgraph(graph.digraph)
        return whole


def _graphviz() -> Any:
    try:
        import graphviz
    except ImportError as error:
        raise RelayError(
            "DotPlotter needs the graphviz package: pip install 'baton-tvm[viz]'; TermPlotter "
            "needs none"
        ) from error
    return graphviz
