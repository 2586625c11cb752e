"""Lower convolutions of few channels with disjoint windows, such as patch embeddings.

    x (N, C, H, W) -> windows (N, C * kh * kw, H / kh, W / kw) -> conv2d 1x1

Every pixel is read once, so the windows take no more memory than the image. They have enough
channels for blocks, unlike a direct convolution, which loads pixels of as many lines as it has
sums: 3 to 384 channels of 16x16 took three times as long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax, te
from tvm.target import Target

from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv.register_tile import channel_block
from schedules.x86.machine.cpu import Machine

from ..context import LoweringContext
from ..layout_cache import PLAIN

# With more channels, blocks of them are read in place.
LEAST_TAPS, MOST_CHANNELS = 16, 4


def windows_of(w: Conv2dWorkload, target: Target) -> Conv2dWorkload | None:
    """The convolution of one tap over windows; None where these overlap, or channels are many."""
    is_apart = w.kernel == w.strides and w.dilation == (1, 1) and not any(w.padding)
    taps = w.kernel[0] * w.kernel[1]
    if target.kind.name != "llvm" or not (is_apart and w.is_float and w.groups == 1):
        return None
    if w.in_channels > MOST_CHANNELS or taps < LEAST_TAPS:
        return None
    return replace(
        w,
        in_channels=w.in_channels * taps,
        height=w.out_height,
        width=w.out_width,
        kernel=(1, 1),
        strides=(1, 1),
    )


def emit_windows(
    at: LoweringContext, w: Conv2dWorkload, windows: Conv2dWorkload, image: relax.Expr
) -> relax.Var:
    """The input of the convolution over windows, a variable of the layouts; `image` is NCHW."""
    block = channel_block(windows.in_channels, Machine.from_target(at.target).lanes(w.dtype))
    kh, kw = w.kernel

    def gather(x: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, y: Any, x_: Any, *lane: Any) -> Any:
            tap = c * block + sum(lane)
            return x(n, tap // (kh * kw), y * kh + tap // kw % kh, x_ * kw + tap % kw)

        shape = (w.batch, windows.in_channels // block, w.out_height, w.out_width)
        blocked = shape if block == PLAIN else (*shape, block)
        return te.compute(blocked, element, name="windows")

    shape = (w.batch, windows.in_channels, w.out_height, w.out_width)
    call = at.builder.call_te(gather, image, primfunc_name_hint="windows")
    return at.gather("windows", shape, w.dtype, block, call)
