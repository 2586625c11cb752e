"""Visualization of modules: `tvm.contrib.relay_viz`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relax

from ...ir.rewrite import functions_by_name
from ..nested_expressions import handle, nested_function, operands, post_order
from .dot import DotPlotter, DotVizParser
from .interface import Plotter, VizEdge, VizGraph, VizNode, VizParser
from .terminal import TermPlotter, TermVizParser


class RelayVisualizer:
    """Visualizes the functions of a module, `main` first.

    Parameters
    ----------
    relay_mod : tvm.IRModule
    relay_param : dict of str to array, optional
        Parameter values; variables with these names are drawn as parameters.
    plotter : Plotter, optional
        `TermPlotter` by default.
    parser : VizParser, optional
        `TermVizParser` by default.
    """

    def __init__(
        self,
        relay_mod: tvm.IRModule,
        relay_param: Mapping[str, Any] | None = None,
        plotter: Plotter | None = None,
        parser: VizParser | None = None,
    ) -> None:
        self._plotter = plotter or TermPlotter()
        parser = parser or TermVizParser()
        functions = functions_by_name(relay_mod)
        for name in sorted(functions, key=lambda each: (each != "main", each)):
            graph = self._plotter.create_graph(name)
            nodes = list(post_order(nested_function(functions[name]), _below))
            identities = Identities(nodes)
            for node in nodes:
                viz_node, edges = parser.get_node_edges(node, relay_param or {}, identities)
                if viz_node is not None:
                    graph.node(viz_node)
                for edge in edges:
                    graph.edge(edge)

    def render(self, filename: str | None = None) -> None:
        """Draw to a file; by default, to the plotter's default output."""
        self._plotter.render(filename)


class Identities(Mapping[Any, str]):
    """Maps expression nodes to unique string IDs, by identity."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes  # keeps the nodes alive, so that their handles stay unique
        self._numbers = {handle(node): str(number) for number, node in enumerate(nodes)}

    def __getitem__(self, node: Any) -> str:
        return self._numbers[handle(node)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _below(node: Any) -> list[Any]:
    if isinstance(node, relax.Function):
        return [*node.params, node.body.body]
    if isinstance(node, relax.Call):
        return [node.op, *(arg for arg in node.args if isinstance(arg, relax.Expr))]
    if isinstance(node, (relax.Tuple, relax.TupleGetItem, relax.If)):
        return list(operands(node))
    return []
