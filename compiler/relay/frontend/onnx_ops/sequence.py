"""Sequences of tensors whose length is known."""

from __future__ import annotations

from tvm import relax

from ..onnx_node import Node


def sequence_insert(node: Node) -> relax.Expr:
    """A tensor in front of a position, which may count from the end; without one, at the end."""
    fields = [*node[0].fields]
    position = len(fields)
    if node.get(2) is not None:
        position = int(node.value(2, "the position").reshape(-1)[0])
    if not -len(fields) <= position <= len(fields):
        raise node.unsupported(f"position {position} is outside of {len(fields)} tensors")
    if position < 0:
        position += len(fields)
    return relax.Tuple([*fields[:position], node[1], *fields[position:]])


CONVERTERS = {"SequenceInsert": sequence_insert}
