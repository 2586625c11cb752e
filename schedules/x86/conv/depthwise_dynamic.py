"""Depthwise convolution over images with dynamic extents, as one kernel on x86.

Images are channels-last. The loops are written by hand, since no schedule primitive tiles an
unknown number of pixels:

    parallel rows of all images, channel blocks of whole vectors:
      tiles of a few pixels of the row:      sums in registers over all kernel positions

The last tile of a row is shifted back to end with the row's last pixel. Only tiles that read
beyond the image compare columns with its width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ..machine.cpu import Machine
from .register_tile import largest_divisor

PIXELS, VECTORS = 4, 2
"""Register tile: eight sums hide the latency of two FMA units, also with 16 registers."""
MOST_UNROLLED = 16
"""Kernel positions along the width that are unrolled; longer kernels loop over them."""


@dataclass(frozen=True)
class Plan:
    """Tiling of a depthwise convolution; pairs are (rows, columns)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]  # above, left, below, right
    lanes: int
    vectors: int
    channels: int


def plan(
    channels: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    pads: tuple[int, int, int, int],
    target: Target,
) -> Plan | None:
    """Plan a float32 convolution; None if the channel count is not a multiple of the lanes."""
    lanes = Machine.from_target(target).lanes("float32")
    if channels % lanes or kernel[1] > MOST_UNROLLED:
        return None
    vectors = largest_divisor(channels // lanes, VECTORS)
    return Plan(kernel, strides, dilation, pads, lanes, vectors, channels)


def pack_weight(weight: np.ndarray) -> np.ndarray:
    """(C, 1, kh, kw) -> (kh, kw, C)."""
    return np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))


def compute(image: te.Tensor, weight: te.Tensor, places: tuple[Any, Any], plan: Plan) -> te.Tensor:
    """image (n, h, w, C), packed weight -> (n, *places, C)."""
    return te.extern(
        [(image.shape[0], *places, plan.channels)],
        [image, weight],
        lambda ins, outs: _Loops(plan, ins, outs).build(),
        name="depthwise",
        dtype=[image.dtype],
    )


class _Loops:
    """Emit the TIR loops of the kernel."""

    def __init__(self, plan: Plan, ins: Any, outs: Any) -> None:
        self.plan, self.ins, self.outs = plan, ins, outs

    def build(self) -> Any:
        plan = self.plan
        with IRBuilder() as builder:
            self.image, self.weight = map(T.buffer_proxy, self.ins)
            (self.out,) = map(T.buffer_proxy, self.outs)
            self.inputs = self.ins[0].shape[1:3]
            count, height, self.width = self.outs[0].shape[:3]
            blocks = plan.channels // (plan.lanes * plan.vectors)
            with T.parallel(0, count * height) as row:
                n, y = tirx.floordiv(row, height), tirx.floormod(row, height)
                with T.If(self.width >= PIXELS):
                    with T.Then():
                        self._row(n, y, blocks, PIXELS)
                    with T.Else():
                        self._row(n, y, blocks, 1)
            return builder.get()

    def _row(self, n: Any, y: Any, blocks: int, pixels: int) -> None:
        steps = tirx.floordiv(self.width + (pixels - 1), pixels)
        with T.serial(0, blocks) as block, T.serial(0, steps) as step:
            self._tile(n, y, tirx.min(step * pixels, self.width - pixels), block, pixels)

    def _tile(self, n: Any, y: Any, x: Any, block: Any, pixels: int) -> None:
        """Sum all kernel positions for some pixels of a row and a block of channels."""
        plan, (height, width) = self.plan, self.inputs
        channel = block * (plan.lanes * plan.vectors)
        parts = list(itertools.product(range(pixels), range(plan.vectors)))
        whole = T.ramp(0, 1, plan.lanes)
        sums = {
            part: T.buffer_proxy(T.alloc_buffer((plan.lanes,), self.image.dtype)) for part in parts
        }
        zero = tirx.const(0.0, f"{self.image.dtype}x{plan.lanes}")
        for part in parts:
            sums[part][whole] = zero
        top, left = y * plan.strides[0] - plan.pads[0], x * plan.strides[1] - plan.pads[1]
        reach = (pixels - 1) * plan.strides[1] + (plan.kernel[1] - 1) * plan.dilation[1]

        def vector(v: int) -> Any:
            return T.ramp(channel + v * plan.lanes, 1, plan.lanes)

        def read(row: Any, column: Any, v: int) -> Any:
            return self.image[n, row, column, vector(v)]

        def read_or_zero(row: Any, column: Any, v: int) -> Any:
            is_there = T.broadcast(tirx.all(column >= 0, column < width), plan.lanes)
            near = tirx.max(tirx.min(column, width - 1), 0)  # the load is unconditional
            return tirx.Select(is_there, read(row, near, v), zero)

        def add_row(a: Any, row: Any, load: Callable[[Any, Any, int], Any]) -> None:
            for b, (p, v) in itertools.product(range(plan.kernel[1]), parts):
                column = left + (p * plan.strides[1] + b * plan.dilation[1])
                value = load(row, column, v) * self.weight[a, b, vector(v)]
                sums[p, v][whole] = sums[p, v][whole] + value

        with T.serial(0, plan.kernel[0]) as a:
            row = top + a * plan.dilation[0]
            columns = T.If(tirx.all(left >= 0, left + reach < width))
            with T.If(tirx.all(row >= 0, row < height)), T.Then(), columns:
                with T.Then():
                    add_row(a, row, read)
                with T.Else():
                    add_row(a, row, read_or_zero)
        for p, v in parts:
            self.out[n, y, x + p, vector(v)] = sums[p, v][whole]
