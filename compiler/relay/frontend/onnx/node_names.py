"""Names of the nodes of ONNX models, for messages and for nodes that have none."""

from __future__ import annotations

import collections
import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
from tvm.ir import Span

from compiler.errors import FrontendError
from compiler.ir.spans import span_of


def describe(proto: onnx.NodeProto, opset: int | None = None) -> str:
    """Name an ONNX node for a message: operator, domain, opset, node and its first output."""
    domain = proto.domain or "ai.onnx"
    version = f", opset {opset}" if opset is not None else ""
    output = next((name for name in proto.output if name), "")
    return (
        f"operator {proto.op_type} (domain {domain}{version}) of node {proto.name!r} -> {output!r}"
    )


def named_nodes(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    """The nodes of a graph with their names, or "<operator>_<number>" where they have none."""
    counts: collections.Counter[str] = collections.Counter()
    for node in graph.node:
        if node.name:
            yield node, node.name
        else:
            counts[node.op_type] += 1
            yield node, f"{node.op_type}_{counts[node.op_type] - 1}"


def spans_of_operands(graph: onnx.GraphProto, short: bool = False) -> dict[str, Span]:
    """Spans of values that nodes read: "<first node>.<name>"; `short` keeps the name's end."""
    first: dict[str, Span] = {}
    for node, name in named_nodes(graph):
        for operand in node.input:
            if operand and operand not in first:
                own = operand.rpartition(".")[2] if short else operand
                first[operand] = span_of(f"{name}.{own}", len(name) + 1)
    return first


def save_with_names(model: onnx.ModelProto, folder: str | os.PathLike[str]) -> Path:
    """Save a copy of a model in which every node has a name, "<operator>_<number>".

    The folder is made if missing; the file is `tvm_exported_model_<time>.onnx`, as TVM named it.
    Raises FrontendError if the model is not in memory, or can't be saved there.
    """
    if not isinstance(model, onnx.ModelProto):
        raise FrontendError("export_node_renamed_model_path needs the model as a ModelProto")
    named = onnx.ModelProto()
    named.CopyFrom(model)
    for node, name in named_nodes(named.graph):
        node.name = name
    time = datetime.datetime.now().strftime("%m_%d_%Y_%H_%M_%S")
    path = Path(folder) / f"tvm_exported_model_{time}.onnx"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(named, str(path))
    except OSError as error:
        raise FrontendError(f"{path} can't be written: {error.strerror}") from error
    return path
