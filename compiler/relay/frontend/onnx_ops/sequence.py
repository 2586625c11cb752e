"""Sequences of tensors whose length is known."""

from __future__ import annotations

import itertools

import numpy as np
from tvm import relax

from compiler.graph.constants import constant

from ..onnx_node import Node


def _tensors(node: Node) -> list[relax.Expr]:
    """The tensors of the sequence that is the first operand."""
    if not isinstance(node[0].ty, relax.TupleType):
        raise node.unsupported("the first operand is not a sequence")
    if isinstance(node[0], relax.Tuple):
        return [*node[0].fields]
    return [node.emit(relax.TupleGetItem(node[0], i)) for i in range(len(node[0].ty.fields))]


def _position(node: Node, index: int, count: int, end: int) -> int:
    """Operand `index` as a position below `end` in `count` tensors; it may count from the end."""
    position = int(node.value(index, "the position").reshape(-1)[0])
    if not -count <= position < end:
        raise node.unsupported(f"position {position} is outside of {count} tensors")
    return position + count if position < 0 else position


def sequence_at(node: Node) -> relax.Expr:
    """The tensor at a position."""
    tensors = _tensors(node)
    return tensors[_position(node, 1, len(tensors), len(tensors))]


def sequence_insert(node: Node) -> relax.Expr:
    """A tensor in front of a position; without one, at the end."""
    tensors = _tensors(node)
    position = count = len(tensors)
    if node.get(2) is not None:
        position = _position(node, 2, count, count + 1)
    return relax.Tuple([*tensors[:position], node[1], *tensors[position:]])


def sequence_erase(node: Node) -> relax.Expr:
    """All tensors but that at a position; without one, but the last."""
    tensors = _tensors(node)
    count = len(tensors)
    if not count:
        raise node.unsupported("the sequence is empty")
    position = count - 1 if node.get(1) is None else _position(node, 1, count, count)
    return relax.Tuple([*tensors[:position], *tensors[position + 1 :]])


def split_to_sequence(node: Node) -> relax.Expr:
    """Slices along an axis: of one element, of as many as a scalar says, or of those of a list."""
    shape = node.shape(0)
    axis = node.attr("axis", 0) % len(shape)
    extent = shape[axis]
    sizes = [1] * extent
    if node.get(1) is not None:
        given = node.value(1, "the split")
        sizes = [int(size) for size in given.reshape(-1)]
        if given.ndim == 0 and sizes[0] > 0:
            sizes = [min(sizes[0], extent - begin) for begin in range(0, extent, sizes[0])]
        if sum(sizes) != extent or min(sizes, default=0) < 0:
            raise node.unsupported(f"the split {given.tolist()} of an axis of {extent}")
    squeezed = node.get(1) is None and not node.attr("keepdims", 1)
    slices = []
    for begin, size in zip(itertools.accumulate(sizes, initial=0), sizes):
        part = node.emit(relax.op.strided_slice(node[0], [axis], [begin], [begin + size]))
        slices.append(node.emit(relax.op.squeeze(part, [axis])) if squeezed else part)
    return relax.Tuple(slices)


def optional_has_element(node: Node) -> relax.Expr | None:
    """False without an operand; of any other, TVM's converter."""
    return constant(np.array(False)) if not any(node.proto.input) else None


CONVERTERS = {
    "OptionalHasElement": optional_has_element,
    "SequenceAt": sequence_at,
    "SequenceErase": sequence_erase,
    "SequenceInsert": sequence_insert,
    "SplitToSequence": split_to_sequence,
}
