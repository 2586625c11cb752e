"""Lower nn.conv1d and nn.conv1d_transpose (NCW) to 2-D convolutions of images one row high."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from schedules.conv2d import Conv2dWorkload

from ....ir.constants import constant, static_shape
from ..context import LoweringContext
from ..layout_cache import PLAIN
from .conv2d import emit_conv2d, ints
from .conv2d_transpose import describe, emit_transposed


def lower_conv1d(call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
    """Emit a 1-D convolution as a 2-D one; None for forms that are not lowered here.

    Returns the channel block and the result: an image in blocks of channels or a plain signal.
    """
    attrs = call.attrs
    data, weight = static_shape(call.args[0]), static_shape(call.args[1])
    names = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCW")
    if data is None or weight is None or names != ("NCW", "OIW", "NCW"):
        return None

    left, right = ints(attrs.padding)
    workload = Conv2dWorkload(
        *(data[0], data[1], 1, data[2], weight[0], (1, weight[2])),
        (1, *ints(attrs.strides)),
        (0, left, 0, right),
        (1, *ints(attrs.dilation)),
        int(attrs.groups),
        str(call.args[0].ty.dtype),
        str(call.ty.dtype),
        isinstance(call.args[1], tvm.ir.GenericConst),
    )
    image, filters = at.layouts.images(call.args[0]), _filters(at, call)
    row = emit_conv2d(at, workload, image, filters)
    return None if row is None else _signal(at.builder, *row)


def lower_conv1d_transpose(call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
    """Emit a transposed 1-D convolution; returns as `lower_conv1d`."""
    workload = describe(call)
    if workload is None or workload.groups != 1:
        return None
    left, right = workload.padding
    as_image = replace(
        workload,
        size=(1, *workload.size),
        kernel=(1, *workload.kernel),
        strides=(1, *workload.strides),
        padding=(0, left, 0, right),
        beyond=(0, *workload.beyond),
    )
    image, filters = at.layouts.images(call.args[0]), _filters(at, call)
    row = emit_transposed(at, as_image, image, filters)
    return None if row is None else _signal(at.builder, *row)


def _filters(at: LoweringContext, call: relax.Call) -> relax.Expr:
    """Weights (A, B, W) -> (A, B, 1, W)."""
    weight = call.args[1]
    if isinstance(weight, tvm.ir.GenericConst):
        return constant(weight.value.numpy()[:, :, None])
    return at.builder.emit(relax.op.expand_dims(at.layouts.get(weight, PLAIN), 2))


def _signal(builder: relax.BlockBuilder, block: int, row: relax.Expr) -> tuple[int, relax.Expr]:
    """One row in blocks of channels as it is; (N, C, 1, W) as (N, C, W)."""
    return block, row if block != PLAIN else builder.emit(relax.op.squeeze(row, [2]))
