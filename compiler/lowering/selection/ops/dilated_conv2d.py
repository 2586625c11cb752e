"""Lower dilated convolutions to undilated ones, which support Winograd.

Pixels that a dilated convolution multiplies together are of one phase (y % dilation,
x % dilation). The phases become separate images, side by side in one larger image, with
zeros between them that serve both neighbors as padding:

    x (N, C, H, W) -> phases (N, C, d * (H/d + 1) - 1, ..) -> conv2d 3x3 -> back (N, O, H, W)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tvm import relax, te, tirx
from tvm.target import Target

from schedules import strategy
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import winograd, winograd_polyphase

from ..context import LoweringContext
from ..layout_cache import PLAIN

# Maximum growth of the image in pixels: Winograd saves more than half of the multiplications, some
# of which are spent on zeros and partial tiles.
MOST_PIXELS = 1.5


def phases_of(w: Conv2dWorkload, target: Target, disabled: Collection[str]) -> Any | None:
    """The convolution of all phases; None if Winograd would not be chosen for it."""
    if w.kernel != (3, 3) or w.strides != (1, 1) or w.groups > 1 or w.dilation == (1, 1):
        return None
    if w.padding != w.dilation * 2 or target.kind.name != "llvm":
        return None
    height, width = (_joined(extent, d) for extent, d in zip((w.height, w.width), w.dilation))
    if height * width > MOST_PIXELS * w.height * w.width:
        return None
    phases = replace(w, height=height, width=width, padding=(1, 1, 1, 1), dilation=(1, 1))
    chosen = strategy.select("nn.conv2d", phases, target, None, disabled)
    fast = (*winograd.NAMES.values(), winograd_polyphase.NAME)
    return phases if chosen is not None and chosen[0].name in fast else None


def _joined(extent: int, dilation: int) -> int:
    """Rows of all phases, with one row of zeros between adjacent phases."""
    return dilation * (-(-extent // dilation) + 1) - 1


def emit_phases(
    at: LoweringContext, w: Conv2dWorkload, phases: Conv2dWorkload, data: relax.Expr, block: int
) -> relax.Var:
    """The input of the convolution of all phases: a variable of the layouts."""
    rows, columns = (-(-extent // d) + 1 for extent, d in zip((w.height, w.width), w.dilation))
    dh, dw = w.dilation

    def gather(x: te.Tensor) -> te.Tensor:
        n, c, _, _, *lanes = x.shape

        def element(n: Any, c: Any, y: Any, x_: Any, *lane: Any) -> Any:
            pixel = (y % rows * dh + y // rows, x_ % columns * dw + x_ // columns)
            inside = [y % rows < rows - 1, x_ % columns < columns - 1]
            inside += [pixel[0] < w.height, pixel[1] < w.width]
            value = x(n, c, *pixel, *lane)
            return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, x.dtype))

        shape = (n, c, phases.height, phases.width, *lanes)
        return te.compute(shape, element, name="phase_gather")

    shape = (w.batch, w.in_channels, phases.height, phases.width)
    call = at.builder.call_te(gather, at.layouts.get(data, block))
    return at.gather("phases", shape, w.dtype, block, call)


def emit_pixels(at: LoweringContext, w: Conv2dWorkload, block: int, conv: relax.Expr) -> relax.Expr:
    """The pixels of the convolution of all phases in their places."""
    rows, columns = (-(-extent // d) + 1 for extent, d in zip((w.height, w.width), w.dilation))
    dh, dw = w.dilation

    def pixels(x: te.Tensor) -> te.Tensor:
        n, c, _, _, *lanes = x.shape
        return te.compute(
            (n, c, w.out_height, w.out_width, *lanes),
            lambda n, c, y, x_, *lane: x(
                n, c, y % dh * rows + y // dh, x_ % dw * columns + x_ // dw, *lane
            ),
            name="phase_pixels",
        )

    assert block != PLAIN, "Winograd's product has blocks of channels"
    return at.builder.emit(at.builder.call_te(pixels, conv))
