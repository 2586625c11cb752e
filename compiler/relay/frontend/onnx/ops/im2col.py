"""Windows of images as columns: images of columns, and convolutions whose taps are moved."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from tvm import relax, te, tirx

from compiler.relay.op.te_op import kernel

from ..node import Node, constant_value
from . import dynamic_operands


def _image_of_columns(
    data: te.Tensor,
    image: list[Any],
    taps: list[Any],
    strides: list[int],
    pads: list[int],
    dilations: list[int],
) -> te.Tensor:
    """The sum of all that columns (n, c * taps, places) have for each element of an image."""
    rank = len(image)
    reduced = [te.reduce_axis((0, extent)) for extent in taps]
    places = [
        tirx.floordiv(
            image[i] + (pads[i] + pads[i + rank] - 1) - (taps[i] - 1) * dilations[i], strides[i]
        )
        + 1
        for i in range(rank)
    ]

    def flat(index: list[Any], extents: list[Any], start: Any) -> Any:
        for own, extent in zip(index, extents):
            start = start * extent + own
        return start

    def element(n: Any, c: Any, *at: Any) -> Any:
        shifted = [at[i] + pads[i] - reduced[i] * dilations[i] for i in range(rank)]
        index = [tirx.floordiv(shifted[i], strides[i]) for i in range(rank)]
        inside = [
            tirx.all(
                tirx.floormod(shifted[i], strides[i]) == 0, index[i] >= 0, index[i] < places[i]
            )
            for i in range(rank)
        ]
        value = data(n, flat(reduced, taps, c), flat(index, places, tirx.const(0, "int64")))
        zero = tirx.const(0, data.dtype)
        return te.sum(tirx.if_then_else(tirx.all(*inside), value, zero), reduced)

    channels = tirx.floordiv(data.shape[1], functools.reduce(operator.mul, taps))
    return te.compute((data.shape[0], channels, *image), element, "image")


_image_kernel = kernel("image_of_columns", _image_of_columns)


def col2im(node: Node) -> relax.Expr:
    """Columns summed into the image whose windows they are."""
    image, taps = (_extents(node, index) for index in (1, 2))
    rank = len(image)
    strides, dilations, pads = node.window(rank)
    batch, rows, columns = node.extents(0)
    places = [
        (image[i] + pads[i] + pads[i + rank] - dilations[i] * (taps[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    data, size = node[0], math.prod(taps)
    if all(isinstance(extent, int) for extent in (*image, *taps, rows, columns)):
        if math.prod(places) != columns or rows % size:
            raise node.unsupported(
                f"{rows} rows and {columns} columns of windows {taps} at {places}"
            )
    else:  # the reshape raises an error where the numbers of elements differ
        whole = relax.ShapeExpr([batch, rows // size * size, math.prod(places)])
        data = node.emit(relax.op.reshape(data, whole))
    return _image_kernel(
        *(data, relax.ShapeExpr(image), relax.ShapeExpr(taps)),
        strides=strides,
        pads=pads,
        dilations=dilations,
    )


def _extents(node: Node, index: int) -> list[Any]:
    """The extents that an operand says, known or at run time."""
    known = constant_value(node[index])
    if known is not None:
        return [int(extent) for extent in known]
    count = int(node.shape(index)[0])
    return list(
        dynamic_operands.extents_of(node, dynamic_operands.as_int64(node, node[index]), count)
    )


def _moved_columns(
    data: te.Tensor,
    offset: te.Tensor,
    mask: te.Tensor,
    taps: list[int],
    strides: list[int],
    pads: list[int],
    dilations: list[int],
) -> te.Tensor:
    """(n, c, taps, taps, y, x): samples at the moved taps of the windows, times their masks."""
    batch, channels, height, width = data.shape
    groups = mask.shape[1] // (taps[0] * taps[1])

    def sample(n: Any, c: Any, i: Any, j: Any, y: Any, x: Any) -> Any:
        tap = (tirx.floordiv(c, channels // groups) * taps[0] + i) * taps[1] + j
        at_y = offset(n, 2 * tap, y, x) + tirx.Cast(
            offset.dtype, y * strides[0] - pads[0] + i * dilations[0]
        )
        at_x = offset(n, 2 * tap + 1, y, x) + tirx.Cast(
            offset.dtype, x * strides[1] - pads[1] + j * dilations[1]
        )
        top, left = tirx.floor(at_y), tirx.floor(at_x)

        def corner(down: int, right: int) -> Any:
            row, column = tirx.Cast("int64", top) + down, tirx.Cast("int64", left) + right
            inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
            far_y, far_x = at_y - top, at_x - left
            share = (far_y if down else 1 - far_y) * (far_x if right else 1 - far_x)
            zero = tirx.const(0, data.dtype)
            return tirx.if_then_else(inside, data(n, c, row, column) * share, zero)

        corners = [corner(down, right) for down in (0, 1) for right in (0, 1)]
        return functools.reduce(lambda one, other: one + other, corners) * mask(n, tap, y, x)

    shape = (batch, channels, *taps, mask.shape[2], mask.shape[3])
    return te.compute(shape, sample, "columns")


_columns_kernel = kernel("moved_columns", _moved_columns)


def deform_conv(node: Node) -> relax.Expr:
    """A convolution whose taps are moved by offsets and weighted by a mask."""
    if len(node.shape(0)) != 4:
        raise node.unsupported("only images of two dimensions are supported")
    batch, channels, *_ = node.shape(0)
    filters, _, *taps = node.shape(1)
    groups, moved = node.attr("group", 1), node.attr("offset_group", 1)
    _, _, *places = node.shape(2)
    mask = node.get(4)
    if mask is None:
        one = relax.const(1.0, node.dtype(0))
        mask = relax.op.full((batch, moved * math.prod(taps), *places), one)
    strides, dilations, pads = node.window(2)
    columns = _columns_kernel(
        *(node[0], node[2], node.emit(mask)),
        taps=taps,
        strides=strides,
        pads=pads,
        dilations=dilations,
    )
    inner, count = channels // groups * math.prod(taps), math.prod(places)
    weights = relax.op.reshape(node[1], (1, groups, filters // groups, inner))
    right = relax.op.reshape(node.emit(columns), (batch, groups, inner, count))
    product = node.emit(relax.op.matmul(weights, right))
    result = node.emit(relax.op.reshape(product, (batch, filters, *places)))
    if node.get(3) is not None:
        result = relax.op.add(result, relax.op.reshape(node[3], (1, filters, 1, 1)))
    return result


CONVERTERS = {"Col2Im": col2im, "DeformConv": deform_conv}
