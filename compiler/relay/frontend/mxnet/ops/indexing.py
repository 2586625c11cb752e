"""Slices, gathers and masks."""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.errors import FrontendError
from compiler.ir.constants import constant

from ..node import SymbolNode

op = relax.op


def slice_axes(node: SymbolNode) -> relax.Expr:
    """Begin, end and step per axis, as Python's slices; axes at the end may be left out."""
    begin, end = node.optional_integers("begin"), node.optional_integers("end")
    step = node.optional_integers("step", ()) or (None,) * len(begin)
    shape = node.shape(0)
    if not len(begin) == len(end) == len(step) <= len(shape):
        raise FrontendError(f"{node.describe()}: begin {begin}, end {end}, step {step}")
    ranges = list(zip(range(len(begin)), begin, end, step))
    return _sliced(node, [(axis, slice(*bounds)) for axis, *bounds in ranges])


def slice_axis(node: SymbolNode) -> relax.Expr:
    """Begin and end on one axis."""
    axis = node.axis(node.integer("axis"), len(node.shape(0)))
    return _sliced(node, [(axis, slice(node.integer("begin", None), node.integer("end", None)))])


def slice_like(node: SymbolNode) -> relax.Expr:
    """The front of each axis, as long as the second input's."""
    rank = len(node.shape(0))
    axes = [node.axis(axis, rank) for axis in node.integers("axes", ())] or range(rank)
    return _sliced(node, [(axis, slice(0, node.shape(1)[axis])) for axis in axes])


def crop(node: SymbolNode) -> relax.Expr:
    """Part of an image, of a given size or of the second input's."""
    shape = node.shape(0)
    node.without_effect("h_w")  # beside a second input
    height, width = node.shape(1)[2:] if node.count > 1 else node.spatial("h_w", 2, 0)
    top, left = node.spatial("offset", 2, 0)
    if node.flag("center_crop", False):
        top, left = (shape[2] - height) // 2, (shape[3] - width) // 2
    if top < 0 or left < 0 or top + height > shape[2] or left + width > shape[3]:
        raise FrontendError(f"{node.describe()}: the crop lies outside of {shape}")
    return _sliced(node, [(2, slice(top, top + height)), (3, slice(left, left + width))])


def _sliced(node: SymbolNode, slices: list[tuple[int, slice]]) -> relax.Expr:
    axes, begin, end, strides = [], [], [], []
    for axis, wanted in slices:
        if wanted.step == 0:
            raise FrontendError(f"{node.describe()}: step is 0")
        extent = node.shape(0)[axis]
        start, stop, step = wanted.indices(extent)
        if (start, stop, step) == (0, extent, 1):
            continue
        if step < 0 and stop < 0:
            stop = -extent - 1  # -1 would count from the end again
        axes.append(axis)
        begin.append(start)
        end.append(stop)
        strides.append(step)
    return op.strided_slice(node[0], axes, begin, end, strides) if axes else node[0]


def _indices(node: SymbolNode, index: int) -> relax.Expr:
    """An input as integers; MXNet's indices may be floats."""
    if node.dtype(index) in ("int32", "int64"):
        return node[index]
    return node.emit(op.astype(node[index], "int32"))


def _clipped(node: SymbolNode, indices: relax.Expr, extent: int, mode: str) -> relax.Expr:
    """Indices brought within 0..extent-1."""
    dtype = str(indices.ty.dtype)
    if mode == "wrap":
        return node.emit(op.floor_mod(indices, relax.const(extent, dtype)))
    low = op.maximum(indices, relax.const(0, dtype))
    return node.emit(op.minimum(low, relax.const(extent - 1, dtype)))


def take(node: SymbolNode) -> relax.Expr:
    """Slices of the first input at the indices of the second."""
    mode = node.text("mode", "clip")
    if mode not in ("clip", "wrap"):
        raise node.unsupported(f"mode {mode!r}")
    axis = node.axis(node.integer("axis", 0), len(node.shape(0)))
    return op.take(node[0], _indices(node, 1), axis, mode)


def gather_nd(node: SymbolNode) -> relax.Expr:
    """Elements or slices at coordinates, whose first axis runs over the data's axes."""
    rank = len(node.shape(1))
    indices = node.emit(op.astype(node[1], "int64"))
    return op.gather_nd(node[0], op.permute_dims(indices, [*range(1, rank), 0]))


def pick(node: SymbolNode) -> relax.Expr:
    """One element along an axis for each index."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis", -1), len(shape))
    keep = node.flag("keepdims", False)
    wanted = (*shape[:axis], 1, *shape[axis + 1 :])
    mode = node.text("mode", "clip")
    indices = _clipped(node, _indices(node, 1), shape[axis], mode)
    indices = node.emit(op.reshape(indices, wanted))
    picked = op.gather_elements(node[0], op.astype(indices, "int64"), axis)
    return picked if keep else op.squeeze(node.emit(picked), [axis])


def one_hot(node: SymbolNode) -> relax.Expr:
    """1 at the index along a new last axis, 0 elsewhere and for indices out of range."""
    depth, dtype = node.integer("depth"), node.dtype_attr("float32")
    indices = _indices(node, 0)
    kind = str(indices.ty.dtype)
    along = node.emit(op.expand_dims(indices, -1))
    here = op.equal(along, constant(np.arange(depth).astype(kind)))
    on, off = (
        relax.const(value if "float" in dtype else int(value), dtype)
        for value in (node.number("on_value", 1.0), node.number("off_value", 0.0))
    )
    return op.where(here, on, off)


def _masked(node: SymbolNode, value: float) -> relax.Expr:
    if not node.flag("use_sequence_length", False):
        node.without_effect("axis")
        return node[0]
    inside = node.emit(op.less(_positions(node), _lengths(node)))
    return op.where(inside, node[0], node.scalar(value))


def _positions(node: SymbolNode) -> relax.Expr:
    """The position in its sequence of every element, to be broadcast."""
    shape, axis = node.shape(0), node.integer("axis", 0)
    along = [extent if i == axis else 1 for i, extent in enumerate(shape)]
    return constant(np.arange(shape[axis], dtype="int32").reshape(along))


def _lengths(node: SymbolNode) -> relax.Expr:
    """The length of every sequence, to be broadcast."""
    shape, axis = node.shape(0), node.integer("axis", 0)
    if axis not in (0, 1):
        raise node.unsupported(f"axis {axis}")
    along = [extent if i == 1 - axis else 1 for i, extent in enumerate(shape)]
    return node.emit(op.reshape(op.astype(node[1], "int32"), along[:2] + [1] * (len(shape) - 2)))


def sequence_reverse(node: SymbolNode) -> relax.Expr:
    """Sequences backwards, up to their lengths."""
    if node.integer("axis", 0) != 0:
        raise node.unsupported(f"axis {node.integer('axis', 0)}")
    if not node.flag("use_sequence_length", False):
        return op.flip(node[0], 0)
    shape = node.shape(0)
    positions, lengths = _positions(node), _lengths(node)
    mirrored = op.subtract(op.subtract(lengths, relax.const(1, "int32")), positions)
    source = node.emit(op.where(op.less(positions, lengths), mirrored, positions))
    whole = op.broadcast_to(source, shape)
    return op.gather_elements(node[0], op.astype(node.emit(whole), "int64"), 0)


def sequence_last(node: SymbolNode) -> relax.Expr:
    """The last element of each sequence."""
    axis, shape = node.integer("axis", 0), node.shape(0)
    if not node.flag("use_sequence_length", False):
        last = op.strided_slice(node[0], [axis], [shape[axis] - 1], [shape[axis]])
        return op.squeeze(node.emit(last), [axis])
    final = node.emit(op.subtract(_lengths(node), relax.const(1, "int32")))
    wanted = (*shape[:axis], 1, *shape[axis + 1 :])
    whole = op.astype(node.emit(op.broadcast_to(final, wanted)), "int64")
    return op.squeeze(node.emit(op.gather_elements(node[0], whole, axis)), [axis])


CONVERTERS = {
    **dict.fromkeys(("slice", "crop"), slice_axes),
    "slice_axis": slice_axis,
    "slice_like": slice_like,
    "Crop": crop,
    **dict.fromkeys(("take", "_npi_take"), take),
    **dict.fromkeys(
        ("Embedding", "_npx_embedding"), lambda node: op.take(node[1], _indices(node, 0), 0, "clip")
    ),
    "gather_nd": gather_nd,
    "pick": pick,
    **dict.fromkeys(("one_hot", "_npx_one_hot"), one_hot),
    "SequenceMask": lambda node: _masked(node, node.number("value", 0.0)),
    "SequenceReverse": sequence_reverse,
    "SequenceLast": sequence_last,
}
