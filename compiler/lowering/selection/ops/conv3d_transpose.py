"""Lower nn.conv3d_transpose (NCDHW, IODHW) to a convolution with a channel for each phase.

As in two dimensions (`conv2d_transpose`), output voxels of one phase along every axis are a
convolution of the input with every stride-th tap; all phases together are one 3-D convolution,
whose result is shuffled into place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te

from schedules.conv3d import Conv3dWorkload

from ....ir.constants import array_of, static_shape
from ..context import LoweringContext
from ..layout_cache import PLAIN
from .conv2d import ints
from .conv2d_transpose import Phases, phases_of, split_taps
from .conv3d import emit_by_image


def lower_conv3d_transpose(call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
    """Emit a call with constant weights; returns as `lower_conv3d`, None for other forms."""
    attrs, out = call.attrs, static_shape(call)
    data, filters = static_shape(call.args[0]), array_of(call.args[1])
    names = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCDHW")
    if data is None or filters is None or out is None or names != ("NCDHW", "IODHW", "NCDHW"):
        return None
    if int(attrs.groups) != 1 or ints(attrs.dilation) != (1, 1, 1):
        return None
    kernel, strides, front = filters.shape[2:], ints(attrs.strides), ints(attrs.padding)[:3]
    phases = [
        phases_of(*each) for each in zip(data[2:], kernel, strides, front, out[2:], strict=True)
    ]
    convolution = Conv3dWorkload(
        data[0],
        data[1],
        ints(data[2:]),
        out[1] * int(np.prod(strides)),
        ints(phase.taps for phase in phases),
        (1, 1, 1),
        ints([*(phase.before for phase in phases), *(phase.after for phase in phases)]),
        (1, 1, 1),
        dtype=str(call.args[0].ty.dtype),
        out_dtype=str(call.ty.dtype),
    )
    by_phase = split_taps(np, filters, strides, convolution.kernel)
    emitted = emit_by_image(at, convolution, call.args[0], by_phase)
    if emitted is None:
        return None
    block, conv = emitted
    whole = block if out[1] % block == 0 else PLAIN
    depth = convolution.out_size[0]

    def shuffle(x: te.Tensor) -> te.Tensor:
        return _shuffle(x, block, out, depth, strides, front, phases, whole)

    return whole, at.builder.emit(at.builder.call_te(shuffle, conv))


def _shuffle(
    conv: te.Tensor,
    block: int,
    out: tuple[int, ...],
    depth: int,
    strides: tuple[int, ...],
    front: tuple[int, ...],
    phases: list[Phases],
    whole: int,
) -> te.Tensor:
    """Voxels of every phase to their places: images in blocks of channels, or NCDHW for 1."""
    batch, channels, out_depth, *image = out

    def voxel(n: Any, channel: Any, at: tuple[Any, ...], lane: Any) -> Any:
        phase: Any = 0
        source = []
        for axis, i in enumerate(at):
            phase = phase * strides[axis] + (i + front[axis]) % strides[axis]
            source.append((i + front[axis]) // strides[axis] - phases[axis].first)
        if lane is not None:
            chunk = phase * (channels // block) + channel
            return conv(n * depth + source[0], chunk, *source[1:], lane)
        c = phase * channels + channel
        if block == PLAIN:
            return conv(n, c, *source)
        return conv(n * depth + source[0], c // block, *source[1:], c % block)

    if whole == PLAIN:
        return te.compute(out, lambda n, c, *at: voxel(n, c, at, None), name="phase_shuffle")

    def lanes(m: Any, chunk: Any, y: Any, x: Any, lane: Any) -> Any:
        return voxel(m // out_depth, chunk, (m % out_depth, y, x), lane)

    shape = (batch * out_depth, channels // whole, *image, whole)
    return te.compute(shape, lanes, name="phase_shuffle")
