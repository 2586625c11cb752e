"""How many results the windows of a convolution have along one axis."""

from __future__ import annotations

from collections.abc import Sequence


def window_places(padded: int, taps: int, stride: int, dilation: int) -> int:
    """Places of a window of `taps` elements, `dilation` apart, in a padded axis."""
    return (padded - (taps - 1) * dilation - 1) // stride + 1


def spread_size(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    beyond: Sequence[int],
) -> tuple[int, ...]:
    """Spatial shape of a transposed convolution's result.

    `padding`: all front crops, then all back crops. `beyond`: output padding.
    """
    cut = zip(padding[: len(size)], padding[len(size) :], strict=True)
    return tuple(
        (extent - 1) * stride + taps + more - before - after
        for extent, stride, taps, more, (before, after) in zip(size, strides, kernel, beyond, cut)
    )
