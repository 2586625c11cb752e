"""Remove kernel positions of a convolution that only ever read padding.

16x16 image, 3x3 taps 18 apart, 18 rows of padding    only the tap in the middle meets it
1x1 image, 3x3 taps, one row of padding                likewise
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from schedules.conv2d import Conv2dWorkload


def trim_taps(w: Conv2dWorkload, filters: np.ndarray) -> tuple[Conv2dWorkload, np.ndarray]:
    """Drop outer taps that never meet the image, unless padding is nonzero; weights are OIHW."""
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
