"""Lower nn.conv3d to 2-D convolutions; with a record or NDHWC, to a library implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from schedules.conv2d import Conv2dWorkload
from schedules.conv3d import Conv3dWorkload
from schedules.x86.conv.register_tile import channel_block
from schedules.x86.machine.cpu import Machine

from ....ir.constants import array_of, constant, static_shape
from ..context import LoweringContext
from ..layout_cache import PLAIN
from ..weight_packing import pack
from .conv2d import READ_PLAIN_BELOW, emit_conv2d, ints

_LAYOUTS = {("NCDHW", "OIDHW"): False, ("NDHWC", "DHWIO"): True}


def describe(call: relax.Call) -> Conv3dWorkload | None:
    """The workload of a conv3d call; None for forms that no implementation takes."""
    attrs = call.attrs
    data, weight = static_shape(call.args[0]), static_shape(call.args[1])
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    same_out = str(attrs.out_layout or layouts[0]) == layouts[0]
    if data is None or weight is None or layouts not in _LAYOUTS or not same_out:
        return None

    channels_last = _LAYOUTS[layouts]
    if channels_last:
        batch, *size, channels = data
        *kernel, _, out_channels = weight
    else:
        batch, channels, *size = data
        out_channels, _, *kernel = weight
    return Conv3dWorkload(
        batch,
        channels,
        ints(size),
        out_channels,
        ints(kernel),
        ints(attrs.strides),
        ints(attrs.padding),
        ints(attrs.dilation),
        int(attrs.groups),
        str(call.args[0].ty.dtype),
        str(call.ty.dtype),
        channels_last,
    )


def lower_conv3d(call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
    """Emit the chosen implementation of a call; None when the library has none for it.

    Returns the channel block and the result: images in blocks of channels or a plain volume.
    """
    workload = describe(call)
    if workload is None:
        return None
    chosen = at.choose("nn.conv3d", workload)
    if chosen is None:
        return None
    impl, config = chosen
    filters = array_of(call.args[1])
    if config.is_fallback and filters is not None and not workload.channels_last:
        by_image = emit_by_image(at, workload, call.args[0], filters)
        if by_image is not None:
            return by_image
    data, weight = (at.layouts.get(arg, PLAIN) for arg in call.args)
    pack_weight = impl.pack
    assert pack_weight is not None, f"{impl.name} has no weight-packing function"
    packed = pack(at.builder, weight, lambda ops, w: pack_weight(workload, ops, w, config))
    call = at.call("conv3d", lambda x, w: impl.compute(workload, config, x, w), data, packed)
    return PLAIN, at.builder.emit(call)


# --- image by image ----------------------------------------------------------------------


def emit_by_image(
    at: LoweringContext, w: Conv3dWorkload, data: relax.Expr, filters: np.ndarray
) -> tuple[int, relax.Expr] | None:
    """Emit a 2-D convolution with the channels of all images that one result image reads.

        x (N * D, C, H, W) -> (N * OD, taps * C, H, W) -> conv2d (N * OD, O, OH, OW)

    This gives 3-D convolutions Winograd and blocked layouts as well. `data` is NCDHW, `filters`
    OIDHW; returns as `lower_conv3d`.
    """
    if at.target.kind.name != "llvm":
        return None
    taps = _taps(w)
    if w.groups > 1 and len(taps) > 1:
        return None
    images = at.layouts.images(data)
    block = at.layouts.block(images)
    if block == PLAIN and w.in_channels >= READ_PLAIN_BELOW and w.groups == 1:
        block = channel_block(w.in_channels, Machine.from_target(at.target).lanes(w.dtype))
    beyond = -w.in_channels % block
    if beyond and w.groups > 1:
        return None
    if w.out_size[0] != w.size[0] or _outside(w, taps).any() or len(taps) > 1 or beyond:
        images = _gathered(at, w, taps, images, block)
    filters = np.pad(filters, ((0, 0), (0, beyond), (0, 0), (0, 0), (0, 0)))
    filters = filters[:, :, taps.start : taps.stop].swapaxes(1, 2)
    filters = filters.reshape(w.out_channels, -1, *w.kernel[1:])
    _, top, left, _, bottom, right = w.padding
    convolution = Conv2dWorkload(
        *(w.batch * w.out_size[0], filters.shape[1] * w.groups, *w.size[1:]),
        *(w.out_channels, (w.kernel[1], w.kernel[2]), (w.strides[1], w.strides[2])),
        (top, left, bottom, right),
        (w.dilation[1], w.dilation[2]),
        w.groups,
        w.dtype,
        w.out_dtype,
        True,
    )
    emitted = emit_conv2d(at.asking(None), convolution, images, constant(filters))
    if emitted is None or emitted[0] != PLAIN:
        return emitted
    n, o, d = w.batch, w.out_channels, w.out_size[0]
    split = at.builder.emit(relax.op.reshape(emitted[1], (n, d, o, *w.out_size[1:])))
    return PLAIN, at.builder.emit(relax.op.permute_dims(split, [0, 2, 1, 3, 4]))


def _taps(w: Conv3dWorkload) -> range:
    """The taps along the depth that meet an image at all: the others only meet padding."""
    met = [tap for tap in range(w.kernel[0]) if not _outside(w, range(tap, tap + 1)).all()]
    return range(met[0], met[-1] + 1) if met else range(1)


def _outside(w: Conv3dWorkload, taps: range) -> np.ndarray:
    """Whether a kernel position lies in the padding; shape (OD, kernel positions)."""
    at = np.arange(w.out_size[0])[:, np.newaxis] * w.strides[0] - w.padding[0]
    at = at + np.array(taps) * w.dilation[0]
    return (at < 0) | (at >= w.size[0])


def _gathered(
    at: LoweringContext, w: Conv3dWorkload, taps: range, images: relax.Expr, block: int
) -> relax.Var:
    """The images that each image of the result reads, side by side as channels."""
    depth, out_depth = w.size[0], w.out_size[0]
    padded = bool(_outside(w, taps).any())

    def gather(x: te.Tensor) -> te.Tensor:
        _, chunks, *rest = (int(extent) for extent in x.shape)

        def element(m: Any, c: Any, *at: Any) -> Any:
            tap = c // chunks + taps.start
            d = m % out_depth * w.strides[0] + tap * w.dilation[0] - w.padding[0]
            value = x(m // out_depth * depth + d, c % chunks, *at)
            if not padded:
                return value
            return tirx.if_then_else(tirx.all(d >= 0, d < depth), value, tirx.const(0, x.dtype))

        shape = (w.batch * out_depth, len(taps) * chunks, *rest)
        return te.compute(shape, element, name="depth_gather")

    channels = len(taps) * (w.in_channels + -w.in_channels % block)
    shape = (w.batch * out_depth, channels, *w.size[1:])
    call = at.builder.call_te(gather, at.layouts.get(images, block))
    return at.gather("images", shape, w.dtype, block, call)
