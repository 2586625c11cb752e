"""Bring a symbol that an old MXNet wrote to the form that version 1.9 writes.

Default initializers, which MXNet adds to files of before 0.9.4, are not added: they serve
training only.
"""

from __future__ import annotations

from .graph import VARIABLE, Entry, Graph, Node
from .operators import input_names

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
