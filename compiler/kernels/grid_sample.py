"""Samples of images at places between their elements, as ONNX's GridSample defines them.

TOPI writes the place of each neighbor out for every read of it: an expression of 190 kB for the
sixteen neighbors of a bicubic sample whose places are reflected. Here places and weights along
each axis are tensors, which samples of all channels read.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from schedules.generic.inline import KEPT

Expr = Any

_COUNTS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""How many elements along each axis a sample is made of."""
_CUBIC = -0.75


def grid_sample(
    data: te.Tensor,
    grid: te.Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> te.Tensor:
    """Values at the positions of a grid whose coordinates go from -1 to 1, as the data's dtype.

    `data`: (batch, channels, *extents), of one to three extents. `grid`: (batch, axes, *samples) of
    floats; coordinates along the last axis come first. `method`: "nearest", "bilinear" (along all
    axes) or "bicubic". `layout`: channels are the second axis in all. `padding_mode`: "zeros",
    "border" (the nearest element) or "reflection". `align_corners`: whether -1 and 1 are the
    centers of the outermost elements, not their outer edges. The result is (batch, channels,
    *samples).
    """
    batch, channels, *extents = data.shape
    samples = list(grid.shape[2:])
    axes = [
        _neighbors(grid, axis, extent, method, padding_mode, align_corners)
        for axis, extent in enumerate(extents)
    ]
    count = _COUNTS[method]

    def sample(n: Expr, channel: Expr, *at: Expr) -> Expr:
        def along(axis: int, before: list[Expr]) -> Expr:
            if axis == len(extents):
                is_inside = tirx.all(*(index >= 0 for index in before))
                value = data(n, channel, *before)
                return tirx.if_then_else(is_inside, value, tirx.const(0, data.dtype))
            places, weights = axes[axis]
            total: Expr = None
            for step in range(count):
                part = along(axis + 1, [*before, places(n, step, *at)])
                if weights is not None:
                    part = part * tirx.Cast(data.dtype, weights(n, step, *at))
                total = part if total is None else total + part
            return total

        return along(0, [])

    return te.compute((batch, channels, *samples), sample, name="grid_sample", tag="grid_sample")


def _neighbors(
    grid: te.Tensor, axis: int, extent: Expr, method: str, padding_mode: str, align_corners: bool
) -> tuple[te.Tensor, te.Tensor | None]:
    """Indices along an axis, -1 for one outside, and the weights of a sample's elements.

    Both are (batch, neighbors, *samples); the nearest element has no weight.
    """
    batch, count, *samples = grid.shape
    component = int(count) - 1 - axis

    def number(value: float) -> Expr:
        return tirx.const(value, grid.dtype)

    size = tirx.Cast(grid.dtype, extent)
    last = size - number(1)

    def outside(place: Expr) -> Expr:
        if padding_mode == "reflection":
            place = _reflected(place, size, align_corners)
        return place if padding_mode == "zeros" else tirx.Min(tirx.Max(place, number(0)), last)

    def position(n: Expr, *at: Expr) -> Expr:
        scaled = grid(n, component, *at) + number(1)
        if align_corners:
            place = scaled * last / number(2)
        else:
            place = scaled * size / number(2) - number(0.5)
        return place if method == "bicubic" else outside(place)

    once = {KEPT: 1}
    positions = te.compute((batch, *samples), position, name=f"positions_{axis}", attrs=once)
    first = -1 if method == "bicubic" else 0

    def place(n: Expr, step: Expr, *at: Expr) -> Expr:
        exact = positions(n, *at)
        nearby = te.nearbyint(exact) if method == "nearest" else te.floor(exact)
        here = nearby + tirx.Cast(grid.dtype, step + first)
        here = outside(here) if method == "bicubic" else here
        is_inside = tirx.all(here >= number(0), here <= last)
        return tirx.Select(is_inside, tirx.Cast("int32", here), tirx.const(-1, "int32"))

    shape = (batch, _COUNTS[method], *samples)
    places = te.compute(shape, place, name=f"places_{axis}", attrs=once)
    if method == "nearest":
        return places, None

    def weight(n: Expr, step: Expr, *at: Expr) -> Expr:
        exact = positions(n, *at)
        far = te.abs(exact - te.floor(exact) - tirx.Cast(grid.dtype, step + first))
        return _cubic(far) if method == "bicubic" else number(1) - far

    return places, te.compute(shape, weight, name=f"weights_{axis}", attrs=once)


def _cubic(far: Expr) -> Expr:
    """The weight of an element that is so far from a place."""

    def number(value: float) -> Expr:
        return tirx.const(value, far.ty)

    a = _CUBIC
    inner = (number(a + 2) * far - number(a + 3)) * far * far + number(1)
    outer = ((number(a) * far - number(5 * a)) * far + number(8 * a)) * far - number(4 * a)
    return tirx.Select(far <= number(1), inner, outer)


def _reflected(place: Expr, size: Expr, align_corners: bool) -> Expr:
    """Where a place comes to lie that is turned back at both ends of an axis, up to rounding."""
    zero, half, one = (tirx.const(value, size.ty) for value in (0, 0.5, 1))
    first = zero if align_corners else -half
    width = tirx.Max(size - one, one) if align_corners else size
    distance, period = place - first, width + width
    turned = te.abs(distance - period * te.nearbyint(distance / period)) + first
    return tirx.Select(tirx.all(place >= first, distance <= width), place, turned)
