"""Partitioner and options that a symbol's subgraph node records.

It is kept as annotations `__baton_<key>__`, which MXNet's loader leaves alone. The subgraph nodes
of other writers have none; they only call their bodies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.runtime.library_operators import LibraryOperator, find, find_for_subgraphs

from .graph import Graph, Node
from .json_format import graph_data

_PREFIX = "__baton_"


@dataclass(frozen=True)
class SubgraphInfo:
    """Partitioner of a subgraph and the options for its build."""

    backend: str
    strategy: str
    subgraph_id: int  # counts the strategy's candidates
    on_compile_error: str = "raise"  # "raise", "back" or "split"
    shared: bool = False  # identical subgraphs share one function
    options: str = "{}"  # JSON
    library: str = ""  # as in `Strategy.library`: names whose operator runs the subgraph

    def annotations(self) -> dict[str, str]:
        """Attributes of the subgraph node."""
        values = {
            "backend": self.backend,
            "strategy": self.strategy,
            "subgraph_id": str(self.subgraph_id),
            "on_compile_error": self.on_compile_error,
            "shared": str(self.shared),
            "options": self.options,
            "library": self.library,
        }
        return {f"{_PREFIX}{key}__": value for key, value in values.items()}


def subgraph_info_of(node: Node) -> SubgraphInfo | None:
    """Return what a subgraph node records; None for other nodes and other writers."""
    found = {
        key.removeprefix(_PREFIX).removesuffix("__"): value
        for key, value in node.attrs.items()
        if key.startswith(_PREFIX)
    }
    if len(node.subgraphs) != 1 or not found.get("backend") or not found.get("strategy"):
        return None
    number = found.get("subgraph_id", "")
    policy = found.get("on_compile_error", "raise")
    return SubgraphInfo(
        found["backend"],
        found["strategy"],
        int(number) if number.isdecimal() and len(number) < 10 else 0,
        policy if policy in ("back", "split") else "raise",
        found.get("shared") == "True",
        found.get("options", "{}"),
        found.get("library", ""),
    )


def library_operator(node: Node) -> LibraryOperator | None:
    """Return the operator of a loaded library that computes a node, or None.

    A partitioned subgraph belongs to the library of its back end, whatever other library has an
    operator of that name. MXNet's own files name no back end: there the name decides, and
    LibraryOperatorError is raised if several libraries have it.
    """
    if len(node.subgraphs) != 1:
        return find(node.op)
    info = subgraph_info_of(node)
    return find_for_subgraphs(node.op, None if info is None else info.library)


def visible_attrs(attrs: Mapping[str, str]) -> dict[str, str]:
    """The attributes that partitioner callbacks see: all but those of `SubgraphInfo`."""
    return {key: value for key, value in attrs.items() if not key.startswith(_PREFIX)}


def visible_json(graph: Graph) -> str:
    """A graph as JSON, nodes in the order they have, as callbacks and operators see it."""
    data = graph_data(graph)
    pending = [data]
    while pending:
        for node in pending.pop()["nodes"]:
            attrs = node.setdefault("attrs", {})
            if "subgraphs" in node:
                pending += node["subgraphs"]
                node["attrs"] = visible_attrs(attrs)  # other nodes have nothing to hide
    return json.dumps(data)


def own_attrs(node: Node) -> dict[str, str]:
    """The attributes that the backend set on a subgraph node: all but annotations."""
    return {
        key: value
        for key, value in node.attrs.items()
        if not (key.startswith("__") and key.endswith("__"))
    }
