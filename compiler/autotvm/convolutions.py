"""Convolutions by their definition, in float64 or int64: what templates are checked against."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from schedules.conv_shape import window_places


def exact(values: np.ndarray) -> np.ndarray:
    """The values as float64, or int64 where they are integers."""
    return values.astype("float64" if values.dtype.kind == "f" else "int64")


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    """Convolution of (N, C, *spatial) with (O, C/groups, *kernel), in float64 or int64.

    `padding`: of every spatial axis the front, then of every one the back.
    """
    rank = len(strides)
    sides = list(zip(padding[:rank], padding[rank:], strict=True))
    padded = np.pad(exact(x), [(0, 0), (0, 0), *sides])
    batch, channels = padded.shape[:2]
    out_channels, per_group, *kernel = weight.shape
    groups = channels // per_group
    extents = list(map(window_places, padded.shape[2:], kernel, strides, dilation))
    split = exact(weight).reshape(groups, out_channels // groups, per_group, *kernel)
    shape = (batch, groups, out_channels // groups, math.prod(extents))
    total = np.zeros(shape, padded.dtype)
    everything = slice(None)
    for tap in itertools.product(*map(range, kernel)):
        window: list[Any] = [
            slice(at * step, at * step + (extent - 1) * stride + 1, stride)
            for at, step, extent, stride in zip(tap, dilation, extents, strides)
        ]
        places: tuple[Any, ...] = (everything, everything, *window)
        read = padded[places]
        taps: tuple[Any, ...] = (everything, everything, everything, *tap)
        total += split[taps] @ read.reshape(batch, groups, per_group, -1)
    return total.reshape(batch, out_channels, *extents)


def transposed_convolution(
    x: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    beyond: Sequence[int],
    groups: int = 1,
) -> np.ndarray:
    """Transposed convolution of (N, C, *spatial) with (C, O, *kernel), in float64.

    `padding`: all front pads, then all back pads. `beyond`: rows and columns added at each end.
    """
    batch, channels, *size = x.shape
    _, out_channels, *kernel = weight.shape
    rank, per_group = len(strides), channels // groups
    extents = [
        (extent - 1) * stride + taps + extra
        for extent, stride, taps, extra in zip(size, strides, kernel, beyond)
    ]
    total = np.zeros((batch, groups, out_channels, *extents))
    read = x.astype("float64").reshape(batch, groups, per_group, -1)
    split = weight.astype("float64").reshape(groups, per_group, out_channels, *kernel)
    everything = slice(None)
    for tap in itertools.product(*map(range, kernel)):
        taps: tuple[Any, ...] = (everything, everything, everything, *tap)
        product = split[taps].transpose(0, 2, 1) @ read
        window: list[Any] = [
            slice(at, at + (extent - 1) * stride + 1, stride)
            for at, extent, stride in zip(tap, size, strides)
        ]
        places: tuple[Any, ...] = (everything, everything, everything, *window)
        total[places] += product.reshape(batch, groups, out_channels, *size)
    crop: list[Any] = [
        slice(padding[axis], extents[axis] - padding[axis + rank]) for axis in range(rank)
    ]
    merged = total.reshape(batch, groups * out_channels, *extents)
    places = (everything, everything, *crop)
    return merged[places]
