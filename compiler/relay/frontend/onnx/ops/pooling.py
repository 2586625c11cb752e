"""Pooling with automatic padding, the places of largest elements, and the way back from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir.constants import static_shape
from compiler.ir.dynamic_shape import as_extent, simplified
from compiler.relay.op.nn.pooling import max_pool_places
from compiler.relay.op.slicing import slice_of_symbols
from compiler.relay.op.te_op import kernel as as_operator

from ..node import Node, constant_value
from . import dynamic_operands
from .convolution import automatic_pads, padded, with_automatic_pads, with_pads


def pooling(node: Node, fill: float = 0.0) -> relax.Expr | None:
    """`auto_pad` as explicit pads, dynamic extents rounded down; others are TVM's."""
    if node.attr("auto_pad", "NOTSET") != "NOTSET":
        return with_automatic_pads(node, node.attr("kernel_shape"), fill)
    is_static = all(isinstance(extent, int) for extent in node.extents(0)[2:])
    return None if is_static or not node.attr("ceil_mode", 0) else _rounded_up(node)


def average_pooling(node: Node) -> relax.Expr | None:
    """The mean of each window; that of dynamic pads is a mean of what is no padding."""
    pads = (
        []
        if node.attr("auto_pad", "NOTSET") == "NOTSET"
        else automatic_pads(node, node.attr("kernel_shape"))
    )
    if all(isinstance(width, int) for width in pads) or node.attr("count_include_pad", 0):
        return pooling(node)
    ones = relax.op.ones([1, 1, *map(as_extent, node.extents(0)[2:])], node.dtype(0))
    sums, counts = (
        with_pads(node, [0] * len(pads), padded(node, each, pads, 0.0))
        for each in (node[0], node.emit(ones))
    )
    return relax.op.divide(sums, counts)


def _rounded_up(node: Node) -> relax.Expr:
    """A pool with `ceil_mode` over dynamic extents, as one that rounds down with larger pads.

    Windows that start in the pads after an axis are cut off. TVM's own extents of such pools are
    conditional expressions, which its later passes reject.
    """
    kernel, extents = node.attr("kernel_shape"), node.extents(0)[2:]
    rank, data = len(kernel), node[0]
    strides, dilations, pads = node.window(rank)
    kept = {}
    for axis, (extent, stride) in enumerate(zip(extents, strides)):
        end, reach = pads[axis + rank], (kernel[axis] - 1) * dilations[axis] + 1
        within = as_extent(extent + pads[axis])
        if reach < end + stride:
            fitting = (within + end - reach + stride - 1) // stride + 1
            kept[axis + 2] = (0, simplified(tirx.min(fitting, (within - 1) // stride + 1)), 1)
    if node.attr("count_include_pad", 0) and any(pads):
        data, pads = padded(node, data, pads, 0.0), [0] * 2 * rank
    pads = [*pads[:rank], *(pad + stride - 1 for pad, stride in zip(pads[rank:], strides))]
    others = {"count_include_pad": 0} if node.proto.op_type == "AveragePool" else {}
    result = with_pads(node, pads, data, ceil_mode=0, **others)
    return slice_of_symbols(result, kept) if kept else result


def lp_pooling(node: Node) -> relax.Expr | None:
    """Windows that `ceil_mode` lets go beyond the pads have more pads: all sum as many elements."""
    is_static = static_shape(node[0]) is not None
    explicit = node.attr("auto_pad", "NOTSET") == "NOTSET"
    if not explicit or not is_static or not node.attr("ceil_mode", 0):
        return pooling(node)
    kernel, shape = node.attr("kernel_shape"), node.shape(0)[2:]
    rank = len(kernel)
    strides, dilations, pads = node.window(rank)
    for axis, (extent, stride) in enumerate(zip(shape, strides)):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        within = pads[axis] + extent
        steps = -(-(within + pads[axis + rank] - reach) // stride)
        if steps * stride >= within:  # the last window starts in the pads behind
            steps -= 1
        pads[axis + rank] = max(steps * stride + reach - within, 0)
    return with_pads(node, pads, ceil_mode=0)


def max_pooling(node: Node) -> relax.Expr | list[relax.Expr] | None:
    """The largest element of each window and, where the model asks for it, its place."""
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        node.attrs.pop("storage_order", None)  # is of the places alone
        return pooling(node, -math.inf)
    kernel = node.attr("kernel_shape")
    rank = len(kernel)
    strides, dilations, pads = node.window(rank)
    if node.attr("auto_pad", "NOTSET") != "NOTSET":
        pads = automatic_pads(node, kernel)
    largest = with_pads(node, pads, outputs=1)
    shape = static_shape(largest)
    if shape is None:
        raise node.unsupported("the shape of input 0 is known only at run time")
    places = max_pool_places(
        node[0],
        shape=list(shape),
        kernel=list(kernel),
        strides=strides,
        dilations=dilations,
        before=pads[:rank],
        first_axis_fastest=bool(node.attr("storage_order", 0)),
    )
    return [largest, places]


def _in_corner(data: te.Tensor, shape: list[Any]) -> te.Tensor:
    """The data in the first corner of a tensor of zeros."""

    def value(*at: Any) -> Any:
        inside = [index < extent for index, extent in zip(at, data.shape)]
        return tirx.if_then_else(tirx.all(*inside), data(*at), tirx.const(0, data.dtype))

    return te.compute(shape, value, name="in_corner")


_in_corner_kernel = as_operator("in_corner", _in_corner)


def max_unpooling(node: Node) -> relax.Expr:
    """Elements put back at their places, zeros elsewhere.

    The places are those of the shape that the windows make; a given `output_shape` goes on behind
    it with zeros, as in ONNX's reference evaluator and node tests.
    """
    shape, dtype = node.shape(0), node.dtype(0)
    kernel = node.attr("kernel_shape")
    rank = len(kernel)
    strides, _, pads = node.window(rank)
    own = list(shape[:2])
    for axis in range(rank):
        steps = (shape[axis + 2] - 1) * strides[axis]
        own.append(steps + kernel[axis] - pads[axis] - pads[axis + rank])
    flat = relax.op.scatter_elements(
        relax.op.zeros((math.prod(own),), dtype),
        relax.op.reshape(node[1], [-1]),
        relax.op.reshape(node[0], [-1]),
        axis=0,
    )
    result = relax.op.reshape(node.emit(flat), own)
    if node.get(2) is None:
        return result
    if constant_value(node[2]) is None:
        result = node.emit(result)
        extents = dynamic_operands.shape_around(node, result, node[2])
        return _in_corner_kernel(result, relax.ShapeExpr(extents))
    wanted = np.array(node.value(2, "the output shape").ravel())
    behind = wanted - own if wanted.size == len(own) else np.array([-1])
    if behind.min() < 0:
        raise node.unsupported(f"the output shape {wanted.tolist()} has no room for {own}")
    widths = [width for extent in behind.tolist() for width in (0, extent)]
    return relax.op.nn.pad(node.emit(result), widths) if any(widths) else result


CONVERTERS = {
    "AveragePool": average_pooling,
    "LpPool": lp_pooling,
    "MaxPool": max_pooling,
    "MaxUnpool": max_unpooling,
}
