"""Operators that only change a tensor's shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from compiler.ir.constants import array_of, static_shape
from compiler.ir.dynamic_shape import simplified
from compiler.relay import dialect
from compiler.relay.op import registry
from compiler.relay.op.reshaping import resolve_reshape

from ..node import Node, constant_value
from ..shape_expr import is_symbolic, shape_of
from . import dynamic_operands


def flatten(node: Node) -> relax.Expr | None:
    """The axes before `axis` as one, and the others as one; sizes of empty tensors too.

    Behind the first axis it is Relay's `nn.batch_flatten`, which is good for any number of samples.
    """
    shape = static_shape(node[0])
    axis = node.attr("axis", 1)
    if shape is None or not -len(shape) <= axis <= len(shape):
        return None
    if axis < 0:
        axis += len(shape)
    flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    if 0 in flat:  # to Relax's reshape, an extent of 0 is that of the operand's same axis
        return empty(node, flat)
    if axis == 1 and array_of(node[0]) is None:
        return dialect.call("nn.batch_flatten", [node[0]])
    return relax.op.reshape(node[0], flat)


def empty(node: Node, shape: Sequence[int]) -> relax.Expr:
    """A tensor without elements, of the dtype of the node's operand."""
    return relax.op.zeros(list(shape), node.dtype(0))


def depth_to_space(node: Node) -> relax.Expr | None:
    """The result of an empty tensor; TVM's converter takes others."""
    shape, size = static_shape(node[0]), node.attr("blocksize")
    if shape is None or len(shape) != 4 or 0 not in shape or shape[1] % size**2:
        return None
    batch, channels, height, width = shape
    return empty(node, (batch, channels // size**2, height * size, width * size))


def space_to_depth(node: Node) -> relax.Expr:
    """Blocks of pixels as channels: those of a pixel of the block together, or of a channel."""
    size, mode = node.attr("blocksize"), node.attr("mode", "DCR")
    batch, channels, height, width = node.extents(0)
    whole = all(not isinstance(extent, int) or extent % size == 0 for extent in (height, width))
    if not whole or mode not in ("DCR", "CRD"):
        raise node.unsupported(f"blocks of {size} pixels a side in the mode {mode!r}")
    rows, columns = (simplified(extent // size) for extent in (height, width))
    if 0 in (static_shape(node[0]) or ()):
        return empty(node, (batch, channels * size**2, rows, columns))
    blocks = relax.op.reshape(node[0], (batch, channels, rows, size, columns, size))
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return relax.op.reshape(
        relax.op.permute_dims(blocks, order), (batch, channels * size**2, rows, columns)
    )


def reshape(node: Node) -> relax.Expr | None:
    """A shape with symbols, of the operand or of the result; TVM's converter takes others."""
    codes, shape = node.extents_in(1), shape_of(node[0])
    if codes is None:
        if static_shape(node[1]) is None:
            raise node.unsupported("the number of extents (input 1) is known only at run time")
        extents = dynamic_operands.as_int64(node, node[1])
        zero = bool(node.attr("allowzero", 0))
        return registry.call("dyn.reshape", [node[0], extents], {"allowzero": zero})
    if shape is None or (static_shape(node[0]) is not None and not is_symbolic(codes)):
        return None
    wanted = [int(code) if isinstance(code, np.integer) else code for code in codes]
    resolved = resolve_reshape(shape, wanted, bool(node.attr("allowzero", 0)))
    return relax.op.reshape(node[0], [simplified(extent) for extent in resolved])


def squeeze(node: Node) -> relax.Expr | None:
    """Axes that are computed while the model runs, or none named; TVM's converter takes others."""
    axes, named = node.get(1), node.attr("axes")
    if axes is None and named is None:
        kept = [each for each in node.extents(0) if each != 1]
        if all(isinstance(each, int) for each in kept):
            return None
        return relax.op.reshape(node[0], dynamic_operands.other_than_one(node, kept))
    known = np.array(named) if axes is None else constant_value(axes)
    if known is not None:
        return _without_known_axes(node, known.reshape(-1).tolist())
    if not node.shape(1) or node.shape(1)[0] == 0:
        node.value(1, "the axes")
    return dynamic_operands.without_axes(
        node, node[0], dynamic_operands.axes_of(node, axes, node[0].ty.ndim)
    )


def _without_known_axes(node: Node, axes: list[int]) -> relax.Expr | None:
    """Reshape, checked at run time, where a symbolic extent may be 1; else use TVM's converter."""
    extents = None if isinstance(node[0], relax.ShapeExpr) else shape_of(node[0])
    if extents is None:
        return None
    places = {node.axis_of(axis, len(extents)) for axis in axes}
    if all(isinstance(extents[place], int) for place in places):
        return None
    return relax.op.reshape(node[0], [e for i, e in enumerate(extents) if i not in places])


def unsqueeze(node: Node) -> relax.Expr | None:
    """A scalar has one shape, whatever the axes are, and these may be one; else TVM's converter."""
    if static_shape(node[0]) == () and node.get(1) is not None:
        return relax.op.reshape(node[0], (1,) * math.prod(node.shape(1)))
    axes = constant_value(node.get(1))
    if axes is not None and axes.ndim == 0 and isinstance(node[0].ty, relax.TensorType):
        return relax.op.expand_dims(node[0], int(axes))
    return None


CONVERTERS = {
    "DepthToSpace": depth_to_space,
    "Flatten": flatten,
    "Reshape": reshape,
    "SpaceToDepth": space_to_depth,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
}
