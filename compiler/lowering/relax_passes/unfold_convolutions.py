"""Convolutions over images of unknown number or size as products of their windows, on CPUs.

    before   y = conv2d(x, w)                      x (n, c, h, w), some of n, h, w unknown
    after    windows = (n * oh * ow, kh * kw * c)   of x with its channels last
             y = matmul(windows, weights)           as (n, oh, ow, o), channels back in place

The schedule library's convolutions are for known extents; its products take any number of rows.
A transposed convolution whose windows do not meet is a product, too, and then moves elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from ...graph.constants import array_of, constant
from ...graph.rewrite import CallRule, rewrite_calls
from ...graph.symbols import as_extent, simplified


def unfold_convolutions(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Rewrite the convolutions of function `name` that have an unknown extent."""
    return rewrite_calls(mod, _Convolutions, [name])


class _Convolutions(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        rule = _RULES.get(name)
        if rule is None or not _is_plain(call):
            return None
        weight = array_of(self.scope.definition(call.args[1]))
        return None if weight is None else rule(self.scope.builder, call, weight)


def _is_plain(call: relax.Call) -> bool:
    """Whether it has an unknown extent, known channels, one group and float32 in NCHW."""
    ty, attrs = call.args[0].ty, call.attrs
    if not isinstance(ty.shape, relax.ShapeExpr) or str(ty.dtype) != "float32":
        return False
    known = [isinstance(extent, tirx.IntImm) for extent in ty.shape.values]
    layouts = str(attrs.data_layout) == "NCHW" and str(attrs.out_layout) in ("", "NCHW")
    return layouts and known[1] and not all(known) and int(attrs.groups) == 1


def _convolution(builder: Any, call: relax.Call, weight: np.ndarray) -> relax.Expr | None:
    attrs = call.attrs
    if str(attrs.kernel_layout) != "OIHW":
        return None
    outputs, channels, *kernel = weight.shape
    top, left, _, _ = (int(each) for each in attrs.padding)
    strides, dilation = ([int(each) for each in pair] for pair in (attrs.strides, attrs.dilation))
    count, _, *extents = call.ty.shape.values
    data = builder.emit(relax.op.permute_dims(call.args[0], [0, 2, 3, 1]))
    number = as_extent(simplified(count * extents[0] * extents[1]))
    rows = relax.ShapeExpr([number, kernel[0] * kernel[1] * channels])

    def windows(image: te.Tensor) -> te.Tensor:
        height, width = image.shape[1], image.shape[2]

        def element(n: Any, y: Any, x: Any, i: Any, j: Any, c: Any) -> Any:
            row = y * strides[0] + i * dilation[0] - top
            column = x * strides[1] + j * dilation[1] - left
            inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
            zero = tirx.const(0, image.dtype)
            return tirx.if_then_else(inside, image(n, row, column, c), zero)

        shape = (image.shape[0], *extents, *kernel, channels)
        return te.compute(shape, element, name="windows")

    if kernel != [1, 1] or strides != [1, 1] or any(int(each) for each in attrs.padding):
        data = builder.emit(builder.call_te(windows, data, primfunc_name_hint="windows"))
    flat = builder.emit(relax.op.reshape(data, rows))
    matrix = constant(np.ascontiguousarray(weight.transpose(2, 3, 1, 0).reshape(-1, outputs)))
    product = builder.emit(relax.op.matmul(flat, matrix))
    shape = relax.ShapeExpr([count, *extents, outputs])
    return relax.op.permute_dims(builder.emit(relax.op.reshape(product, shape)), [0, 3, 1, 2])


def _transposed(builder: Any, call: relax.Call, weight: np.ndarray) -> relax.Expr | None:
    attrs = call.attrs
    channels, outputs, *kernel = weight.shape
    apart = [int(each) for each in attrs.strides] == kernel
    shifts = (*attrs.padding, *attrs.output_padding)
    if str(attrs.kernel_layout) != "IOHW" or not apart or any(int(each) for each in shifts):
        return None
    count, _, *extents = call.args[0].ty.shape.values
    data = builder.emit(relax.op.permute_dims(call.args[0], [0, 2, 3, 1]))
    number = as_extent(simplified(count * extents[0] * extents[1]))
    rows = relax.ShapeExpr([number, channels])
    flat = builder.emit(relax.op.reshape(data, rows))
    matrix = constant(np.ascontiguousarray(weight.reshape(channels, -1)))
    product = builder.emit(relax.op.matmul(flat, matrix))
    shape = relax.ShapeExpr([count, *extents, outputs, *kernel])
    apart_again = builder.emit(relax.op.reshape(product, shape))
    moved = builder.emit(relax.op.permute_dims(apart_again, [0, 3, 1, 4, 2, 5]))
    return relax.op.reshape(moved, call.ty.shape)


_RULES = {"nn.conv2d": _convolution, "nn.conv2d_transpose": _transposed}
