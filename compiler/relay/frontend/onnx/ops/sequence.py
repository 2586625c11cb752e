"""Sequences of tensors whose length is known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.constants import constant

from ..node import Node, constant_value
from . import dynamic_operands


def _tensors(node: Node) -> list[relax.Expr]:
    """The tensors of the sequence that is the first operand."""
    if not isinstance(node[0].ty, relax.TupleType):
        raise node.unsupported("the first operand is not a sequence")
    return _fields(node, node[0])


def _fields(node: Node, sequence: relax.Expr) -> list[relax.Expr]:
    if isinstance(sequence, relax.Tuple):
        return [*sequence.fields]
    return [node.emit(relax.TupleGetItem(sequence, i)) for i in range(len(sequence.ty.fields))]


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
    axis = node.axis(0, len(shape))
    extent = shape[axis]
    sizes: list[Any] = [1] * extent
    if node.get(1) is not None and constant_value(node[1]) is None and node[1].ty.ndim == 1:
        sizes = dynamic_operands.parts_of(node, node[1], axis, int(node.shape(1)[0]))
    elif node.get(1) is not None:
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
    return constant(np.array(False)) if node.get(0) is None else None


def sequence_map(node: Node) -> list[relax.Expr]:
    """A graph for the tensors at each position of sequences; other operands are the same."""
    body = node.attrs["body"]
    count = len(_tensors(node))
    columns = [
        _fields(node, value) if isinstance(value.ty, relax.TupleType) else [value] * count
        for value in node.inputs
        if value is not None
    ]
    rounds = [
        node.importer.convert_subgraph(body, arguments, node.scope)
        for arguments in zip(*columns, strict=True)
    ]
    outputs = range(len(node.proto.output))
    return [relax.Tuple([results[index] for results in rounds]) for index in outputs]


CONVERTERS = {
    "OptionalHasElement": optional_has_element,
    "SequenceAt": sequence_at,
    "SequenceEmpty": lambda _: relax.Tuple([]),
    "SequenceErase": sequence_erase,
    "SequenceInsert": sequence_insert,
    "SequenceMap": sequence_map,
    "SplitToSequence": split_to_sequence,
}
