"""Lower nn.conv2d (NCHW, OIHW) to an implementation of the schedule library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv.conv2d import oc_block_of
from schedules.x86.conv.register_tile import channel_block
from schedules.x86.machine.dot_product import dot_of, largest_sum, narrow_steps
from schedules.x86.templates.group_conv2d_template import within_groups

from ....ir.constants import array_of, constant, static_shape
from ....ir.rewrite import operator_name
from ..context import LoweringContext
from ..layout_cache import PLAIN
from ..weight_packing import pack
from .dilated_conv2d import emit_phases, emit_pixels, phases_of
from .merge_conv_groups import join_groups
from .patch_embed_conv2d import emit_windows, windows_of

# With fewer channels than this a plain input is read directly: a blocked copy has empty lanes.
READ_PLAIN_BELOW = 8
# So is one of which blocks would be this many times the channels, or more.
MOST_EMPTY = 1.25


def ints(values: Any) -> Any:
    """An attribute's integers as a tuple."""
    return tuple(int(value) for value in values)


def operand_types(call: relax.Call) -> tuple[str, str]:
    """Element types of two operands, the second empty where it is the first."""
    first, second = (str(arg.ty.dtype) for arg in call.args[:2])
    return first, "" if second == first else second


def describe(call: relax.Call) -> Conv2dWorkload | None:
    """The workload of a conv2d call; None for forms that no implementation takes."""
    attrs = call.attrs
    data, weight = static_shape(call.args[0]), static_shape(call.args[1])
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if data is None or weight is None or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    if 0 in data:  # nothing to compute
        return None

    dtype, weight_dtype = operand_types(call)
    batch, channels, height, width = data
    return Conv2dWorkload(
        batch,
        channels,
        height,
        width,
        weight[0],
        (weight[2], weight[3]),
        ints(attrs.strides),
        ints(attrs.padding),
        ints(attrs.dilation),
        int(attrs.groups),
        dtype,
        str(call.ty.dtype),
        isinstance(call.args[1], tvm.ir.GenericConst),
        weight_dtype,
    )


def lower_conv2d(call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
    """Emit a conv2d call's implementation; return its channel block and expression, if any."""
    workload = describe(call)
    if workload is None:
        return None
    data, weight = call.args
    if workload.is_integer:
        workload, data = _with_padding(at, workload, data)
    if isinstance(weight, relax.Var):
        weight = at.layouts.get(weight, PLAIN)
    filters = array_of(weight)
    if filters is not None and not _is_recorded(at, workload):
        smaller, kept = join_groups(*trim_taps(workload, filters), at.target, at.disabled)
        if smaller != workload:
            workload, weight = smaller, constant(np.ascontiguousarray(kept))
            at = at.asking(None)
        phases = phases_of(workload, at.target, at.disabled)
        if phases is not None:
            block = at.layouts.block(data)
            if block == PLAIN and workload.in_channels >= READ_PLAIN_BELOW:
                block = channel_block(workload.in_channels, 8)
            images = emit_phases(at, workload, phases, data, block)
            conv = emit_conv2d(at.asking(None), phases, images, weight)
            assert conv is not None, "the selection has just found an implementation"
            return conv[0], emit_pixels(at, workload, *conv)
        windows = windows_of(workload, at.target)
        if windows is not None:
            data = emit_windows(at, workload, windows, at.layouts.get(data, PLAIN))
            shape = (windows.out_channels, windows.in_channels, 1, 1)
            weight = constant(kept.reshape(shape))
            return emit_conv2d(at.asking(None), windows, data, weight)
    return emit_conv2d(at, workload, data, weight)


def _with_padding(
    at: LoweringContext, workload: Conv2dWorkload, data: relax.Expr
) -> tuple[Conv2dWorkload, relax.Expr]:
    """Padding of an image of integers with their zero point, which the kernel does itself."""
    pad = at.definitions.get(data)
    if (
        pad is None
        or operator_name(pad) != "nn.pad"
        or any(workload.padding)
        or pad.attrs.pad_mode != "constant"
    ):
        return workload, data
    *others, top, bottom, left, right = ints(pad.attrs.pad_width)
    inner, value = static_shape(pad.args[0]), int(pad.attrs.pad_value)
    sides = (top, left, bottom, right)
    if any(others) or min(sides) < 0 or inner is None or len(inner) != 4:
        return workload, data
    height, width = inner[2:]
    padded = replace(workload, height=height, width=width, padding=sides, pad_value=value)
    return padded, pad.args[0]


def _is_recorded(at: LoweringContext, workload: Conv2dWorkload) -> bool:
    """Whether the workload as it is has a tuning record, or no implementation at all."""
    chosen = at.choose("nn.conv2d", workload)
    return chosen is None or not chosen[1].is_fallback


def emit_conv2d(
    at: LoweringContext, workload: Conv2dWorkload, data: relax.Expr, weight: relax.Expr
) -> tuple[int, relax.Expr] | None:
    """Emit a workload's implementation (`data` NCHW, `weight` OIHW) as `lower_conv2d` does."""
    filters = array_of(weight)
    if filters is not None and workload.is_bytes and not workload.is_depthwise:
        fitting = narrow_steps(filters.transpose(0, 2, 3, 1), at.target)
        workload = replace(workload, narrow=fitting, largest=largest_sum(filters))
    chosen = at.choose("nn.conv2d", workload)
    if chosen is None:
        return None
    impl, config = chosen
    if workload.groups > 1 and not workload.is_depthwise and "tile_oc" in config:
        config = within_groups(workload, config)
    oc_block = oc_block_of(config)
    ic_block = input_block(workload, config, at.layouts.block(data), oc_block)
    pack_weight = impl.pack
    assert pack_weight is not None, f"{impl.name} has no weight-packing function"
    packed = pack(
        at.builder,
        weight,
        lambda ops, w: pack_weight(ops, w, config, ic_block),
        alike=(impl.name, repr(config.knobs), ic_block),
    )
    result = at.call(
        "conv2d",
        lambda x, w: plain_if_unblocked(impl.compute(workload, config, x, w)),
        at.layouts.get(data, ic_block),
        packed,
    )
    return oc_block, at.builder.emit(result)


def plain_if_unblocked(conv: te.Tensor) -> te.Tensor:
    """(N, C, H, W, 1), which a record can ask for, as the plain (N, C, H, W)."""
    *plain, lanes = conv.shape
    if int(lanes) != PLAIN:
        return conv
    return te.compute(plain, lambda n, c, y, x: conv[n, c, y, x, 0], name="conv2d_plain")


def input_block(workload: Conv2dWorkload, config: Any, present: int, oc_block: int) -> int:
    """Channel block of the input: a record's, else the present block where the groups allow it."""
    if "tile_ic" in config:
        return config.size("tile_ic")[-1]
    if "ic_block" in config:
        return config.val("ic_block")
    if workload.is_depthwise:
        return oc_block
    dot = dot_of(workload.dtype, workload.weight_dtype, workload.out_dtype)
    if "m" in config:
        return PLAIN if workload.in_channels % oc_block else oc_block
    if dot is not None:
        return _input_block_of_dots(workload, present, oc_block, dot.size)
    per_group = workload.in_channels // workload.groups
    if present != PLAIN and (workload.groups == 1 or per_group % present == 0):
        return present
    filled = -(-per_group // oc_block) * oc_block
    if per_group < READ_PLAIN_BELOW or filled > MOST_EMPTY * per_group:
        return PLAIN
    return channel_block(per_group, 16) if workload.groups > 1 else oc_block


def _input_block_of_dots(
    workload: Conv2dWorkload, present: int, oc_block: int, together: int
) -> int:
    """A multiple of the elements of a dot product, in which few channels are empty."""
    per_group = workload.in_channels // workload.groups
    if present % together == 0 and (workload.groups == 1 or per_group % present == 0):
        return present
    if workload.groups > 1:
        return channel_block(per_group, 16)
    return next((block for block in (4, 8) if per_group <= block), oc_block)


def trim_taps(w: Conv2dWorkload, filters: np.ndarray) -> tuple[Conv2dWorkload, np.ndarray]:
    """Drop outer taps that never meet the image, unless padding is nonzero; weights are OIHW.

    16x16 image, 3x3 taps 18 apart, 18 rows of padding    only the tap in the middle meets it
    1x1 image, 3x3 taps, one row of padding                likewise
    """
    if w.pad_value:
        return w, filters
    top, left, bottom, right = w.padding
    rows = _met(w.height, w.out_height, w.kernel[0], w.strides[0], w.dilation[0], top)
    columns = _met(w.width, w.out_width, w.kernel[1], w.strides[1], w.dilation[1], left)
    kernel = (len(rows), len(columns))
    if kernel == w.kernel:
        return w, filters
    top, left = top - rows.start * w.dilation[0], left - columns.start * w.dilation[1]
    bottom = _behind(w.height, w.out_height, kernel[0], w.strides[0], w.dilation[0], top)
    right = _behind(w.width, w.out_width, kernel[1], w.strides[1], w.dilation[1], left)
    if min(top, left, bottom, right) < 0:
        return w, filters
    kept = filters[:, :, rows.start : rows.stop, columns.start : columns.stop]
    return replace(w, kernel=kernel, padding=(top, left, bottom, right)), kept


def _met(extent: int, out: int, taps: int, stride: int, dilation: int, front: int) -> range:
    """Range of the kernel positions that overlap the image at some output position."""
    at = np.arange(taps) * dilation - front  # the position that the first output meets
    first, stop = np.maximum(-(at // stride), 0), np.minimum(-((at - extent) // stride), out)
    met = np.flatnonzero(first < stop)
    return range(int(met[0]), int(met[-1]) + 1) if met.size else range(taps)


def _behind(extent: int, out: int, taps: int, stride: int, dilation: int, front: int) -> int:
    """Trailing padding for `out` output positions."""
    return (out - 1) * stride + (taps - 1) * dilation + 1 - extent - front
