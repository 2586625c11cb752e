"""Lower nn.conv2d_transpose (NCHW, IOHW) to plain convolutions of the schedule library.

Without a record: output pixels of one phase (y % stride, x % stride) are a convolution of the
input with every stride-th kernel position. All phases together are one convolution with stride 1
and a channel per phase, whose result is shuffled into place; no inserted zero is multiplied.

    x (N, I, H, W) -> conv (N, phases * O, ~H, ~W) -> shuffle (N, O, H * stride, W * stride)

With a record of TVM 0.18: the convolution that it tuned, over the input with zeros inserted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx

from schedules import strategy
from schedules.conv2d import Conv2dWorkload
from schedules.conv_transpose import ConvTransposeWorkload

from ....ir.constants import static_shape
from ..context import LoweringContext
from ..layout_cache import PLAIN
from ..weight_packing import pack
from .conv2d import emit_conv2d, ints

_LAYOUTS = (("NCHW", "IOHW"), ("NCW", "IOW"))
# Where a workload (task, data, weight, strides, padding, ...) has its padding.
_PADDING = 4


def describe(call: relax.Call) -> ConvTransposeWorkload | None:
    """The workload of a conv1d_transpose or conv2d_transpose call; None for other forms."""
    attrs = call.attrs
    data, weight = static_shape(call.args[0]), static_shape(call.args[1])
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    same_out = str(attrs.out_layout or layouts[0]) == layouts[0]
    if data is None or weight is None or layouts not in _LAYOUTS or not same_out:
        return None
    if any(step != 1 for step in ints(attrs.dilation)):
        return None
    batch, channels, *size = data
    _, out_channels, *kernel = weight
    return ConvTransposeWorkload(
        batch,
        channels,
        tuple(size),
        out_channels,
        tuple(kernel),
        ints(attrs.strides),
        ints(attrs.padding),
        ints(attrs.output_padding),
        int(attrs.groups),
        str(call.args[0].ty.dtype),
        str(call.ty.dtype),
    )


def lower_conv2d_transpose(call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
    """Emit a call's convolutions; return result and block; None for forms not lowered here."""
    workload = describe(call)
    return None if workload is None else emit_transposed(at, workload, *call.args)


def emit_transposed(
    at: LoweringContext, w: ConvTransposeWorkload, data: relax.Expr, weight: relax.Expr
) -> tuple[int, relax.Expr] | None:
    """Emit a transposed convolution; `data` is NCHW, `weight` IOHW. Returns as above."""
    if w.groups != 1:
        return None
    builder = at.builder
    recorded = _recorded(at, w)
    if recorded is not None:
        dilated = builder.emit(
            builder.call_te(lambda x: _dilate(x, w), at.layouts.get(data, PLAIN))
        )
        at.layouts.define(dilated, PLAIN, dilated)
        # IOHW -> OIHW, turned by 180 degrees
        flipped = pack(
            builder, weight, lambda ops, x: ops.flip(ops.transpose(x, (1, 0, 2, 3)), (2, 3))
        )
        convolution, asked = recorded
        return emit_conv2d(at.asking(asked), convolution, dilated, flipped)
    phases = [phases_of(*each) for each in zip(w.size, w.kernel, w.strides, w.padding, w.out_size)]
    taps = (phases[0].taps, phases[1].taps)
    convolution = Conv2dWorkload(
        w.batch,
        w.in_channels,
        w.size[0],
        w.size[1],
        w.out_channels * w.strides[0] * w.strides[1],
        taps,
        (1, 1),
        (phases[0].before, phases[1].before, phases[0].after, phases[1].after),
        (1, 1),
        dtype=w.dtype,
        out_dtype=w.out_dtype,
        constant_weight=isinstance(weight, tvm.ir.GenericConst),
    )
    by_phase = pack(builder, weight, lambda ops, x: split_taps(ops, x, w.strides, taps))
    emitted = emit_conv2d(at, convolution, data, by_phase)
    if emitted is None:
        return None
    block, conv = emitted
    first = (phases[0].first, phases[1].first)
    whole = block if w.out_channels % block == 0 else PLAIN
    return whole, builder.emit(builder.call_te(lambda x: _shuffle(x, w, first, block, whole), conv))


# --- by phases ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Phases:
    """One axis of the convolution that computes every phase."""

    taps: int  # taps of a phase; the last ones may be zero
    before: int  # padding of the input
    after: int
    first: int  # output pixel y is row (y + padding) // stride - first of the convolution


def phases_of(extent: int, kernel: int, stride: int, front: int, out_extent: int) -> Phases:
    """The phases of an axis of `extent` inputs; `front` is the padding of the call."""
    taps = -(-kernel // stride)
    before = max(taps - 1 - front // stride, 0)
    first = taps - 1 - before
    last = (out_extent - 1 + front) // stride
    rows = last - first + 1
    return Phases(taps, before, max(rows + taps - 1 - extent - before, 0), first)


def split_taps(ops: Any, weight: Any, strides: Sequence[int], taps: Sequence[int]) -> Any:
    """I x O x kernel -> (phases, O) x I x taps, the last tap of a phase first.

    `ops`: numpy, or what `pack` gives in its place.
    """
    inputs, outputs, *kernel = weight.shape
    missing = [(0, t * s - k) for t, s, k in zip(taps, strides, kernel, strict=True)]
    if any(after for _, after in missing):
        weight = ops.pad(weight, [(0, 0), (0, 0), *missing])
    pairs = (extent for pair in zip(taps, strides) for extent in pair)
    split = ops.reshape(weight, (inputs, outputs, *pairs))
    axes = range(2, 2 + len(taps))
    order = (*(2 * axis - 1 for axis in axes), 1, 0, *(2 * axis - 2 for axis in axes))
    shape = (math.prod(strides) * outputs, inputs, *taps)
    return ops.flip(ops.reshape(ops.transpose(split, order), shape), tuple(axes))


def _shuffle(
    conv: te.Tensor, w: ConvTransposeWorkload, first: tuple[int, int], block: int, whole: int
) -> te.Tensor:
    """Pixels of every phase to their places: (N, O/whole, OH, OW, whole), or NCHW for 1."""
    (sh, sw), (top, left) = w.strides, w.padding[:2]

    def pixel(n: Any, channel: Any, y: Any, x: Any) -> Any:
        phase = (y + top) % sh * sw + (x + left) % sw
        row, column = (y + top) // sh - first[0], (x + left) // sw - first[1]
        at = phase * w.out_channels + channel
        if block == PLAIN:
            return conv[n, at, row, column]
        return conv[n, at // block, row, column, at % block]

    if whole == PLAIN:
        return te.compute((w.batch, w.out_channels, *w.out_size), pixel, name="phase_shuffle")

    def lane(n: Any, chunk: Any, y: Any, x: Any, i: Any) -> Any:
        phase = (y + top) % sh * sw + (x + left) % sw
        row, column = (y + top) // sh - first[0], (x + left) // sw - first[1]
        return conv[n, phase * (w.out_channels // block) + chunk, row, column, i]

    shape = (w.batch, w.out_channels // whole, *w.out_size, whole)
    return te.compute(shape, lane, name="phase_shuffle")


# --- by a record -------------------------------------------------------------------------


def _recorded(
    at: LoweringContext, w: ConvTransposeWorkload
) -> tuple[Conv2dWorkload, strategy.Query] | None:
    """TVM 0.18's convolution, padding as (height, width), and its query; None without a record."""
    query = at.query
    if query is None:
        return None
    rows, columns = (w.out_size[axis] + w.kernel[axis] - 1 for axis in (0, 1))
    convolution = Conv2dWorkload(
        *(w.batch, w.in_channels, rows, columns, w.out_channels, ints(w.kernel)),
        *((1, 1), (0, 0, 0, 0), (1, 1)),
        dtype=w.dtype,
        out_dtype=w.out_dtype,
    )
    if min(w.kernel[axis] - 1 - w.padding[axis + side] for axis in (0, 1) for side in (0, 2)) < 0:
        return None

    def asked(target: Any, workload: tuple) -> Any:
        return query(target, (*workload[:_PADDING], (0, 0), *workload[_PADDING + 1 :]))

    chosen = at.asking(asked).choose("nn.conv2d", convolution)
    return None if chosen is None or chosen[1].is_fallback else (convolution, asked)


def _dilate(data: te.Tensor, w: ConvTransposeWorkload) -> te.Tensor:
    """Zeros between the pixels and around them, as the plain convolution wants them."""
    (sh, sw), (top, left) = w.strides, (w.kernel[axis] - 1 - w.padding[axis] for axis in (0, 1))
    rows, columns = (w.out_size[axis] + w.kernel[axis] - 1 for axis in (0, 1))

    def element(n: Any, c: Any, y: Any, x: Any) -> Any:
        y, x = y - top, x - left
        present = [i >= 0 for i in (y, x)]
        present += [i < (n - 1) * step + 1 for i, n, step in zip((y, x), w.size, w.strides)]
        present += [y % sh == 0, x % sw == 0]
        value = data[n, c, y // sh, x // sw]
        return tirx.if_then_else(tirx.all(*present), value, tirx.const(0, data.dtype))

    return te.compute((w.batch, w.in_channels, rows, columns), element, name="data_dilate")
