"""`tvm.contrib.relay_viz.interface`: nodes and edges of a module, and base classes of plotters."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from .. import dialect

UNKNOWN_TYPE = "unknown"


@dataclass(frozen=True)
class VizNode:
    """A node: ID, type and detail lines."""

    identity: str
    type_name: str
    detail: str


@dataclass(frozen=True)
class VizEdge:
    """An edge between the IDs of two nodes."""

    start: str
    end: str


class VizParser(abc.ABC):
    """Creates the node and edges of an expression."""

    @abc.abstractmethod
    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node of an expression, or None if it is hidden, and its incoming edges.

        `relay_param`: the module's parameters. `node_to_id`: IDs of all expressions of the
        function.
        """


class VizGraph(abc.ABC):
    """Graph under construction. Nodes are added after their operands."""

    @abc.abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Add a node."""

    @abc.abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""


class Plotter(abc.ABC):
    """Draws the graphs of a module's functions."""

    @abc.abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """Create the graph of the function with this name."""

    @abc.abstractmethod
    def render(self, filename: str | None) -> None:
        """Draw all graphs to a file."""


class DefaultVizParser(VizParser):
    """Creates one node for each variable, constant, call, tuple and function."""

    def get_node_edges(
        self, node: Any, relay_param: Mapping[str, Any], node_to_id: Mapping[Any, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """See `VizParser.get_node_edges`; operators and global functions are hidden."""
        if isinstance(node, (tvm.ir.GlobalVar, tvm.ir.Op)):
            return None, []
        type_name, details, read = self._described(node, relay_param)
        identity = node_to_id[node]
        edges = [VizEdge(node_to_id[each], identity) for each in read]
        return VizNode(identity, type_name, "\n".join(details)), edges

    @staticmethod
    def _described(node: Any, params: Mapping[str, Any]) -> tuple[str, list[str], list[Any]]:
        """Type, detail lines and operands of a node."""
        if isinstance(node, relax.Function):
            name = str((node.attrs or {}).get("Composite", ""))
            return f"Func {name}", _attributes(node), [node.body.body]
        if isinstance(node, relax.Call):
            return *_call(node), list(node.args)
        if isinstance(node, relax.Var):
            kind = "Var(Param)" if str(node.name) in params else "Var(Input)"
            return kind, [f"name_hint: {node.name}", *_type(node.ty)], []
        if isinstance(node, relax.Tuple):
            return "Tuple", [], list(node.fields)
        if isinstance(node, relax.TupleGetItem):
            return "TupleGetItem", [f"idx: {node.index}"], [node.tuple_value]
        if isinstance(node, tvm.ir.GenericConst):
            shape = tuple(int(extent) for extent in node.value.shape)
            return "Const", [f"shape: {shape}, dtype: {node.value.dtype}"], []
        if isinstance(node, relax.If):
            return "If", [], [node.cond]
        return UNKNOWN_TYPE, [f"don't know how to parse {type(node).__name__}"], []


def _call(call: relax.Call) -> tuple[str, list[str]]:
    if isinstance(call.op, tvm.ir.Op):
        attributes = dialect.attributes(call)
        return f"Call {call.op.name}", [f"{key}: {value}" for key, value in attributes.items()]
    if isinstance(call.op, relax.Function):
        name = str((call.op.attrs or {}).get("Composite", "Anonymous Func"))
        return f"Call {name}", _attributes(call.op)
    if isinstance(call.op, tvm.ir.GlobalVar):
        return "Call GlobalVar", [f"GlobalVar.name_hint: {call.op.name_hint}"]
    return f"Call {type(call.op).__name__}", []


def _attributes(function: relax.Function) -> list[str]:
    return [f"{key}: {value}" for key, value in (function.attrs or {}).items()]


def _type(ty: Any) -> list[str]:
    if ty is None or ty.is_missing():
        return []
    if isinstance(ty, relax.TensorType) and ty.shape is not None:
        return [
            f"shape: ({', '.join(str(_extent(each)) for each in ty.shape.values)})",
            f"dtype: {ty.dtype}",
        ]
    return [f"type_annotation: {ty}"]


def _extent(extent: Any) -> Any:
    return int(extent) if isinstance(extent, tvm.tirx.IntImm) else extent
