"""Merge convolution groups whose channels leave most lanes of a vector empty.

128 channels, 32 groups of 4      8 groups of 16, whose weights between the old groups are zeros

A vector of dot products then has work in every lane, some of it on zeros; there is no
instruction for narrower vectors. In bfloat16, NaNs and infinities spread to the merged groups, as
they do to neighbors with Winograd: if that is disabled, bfloat16 groups stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
from tvm.target import Target

from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import conv2d_amx, winograd
from schedules.x86.machine import amx
from schedules.x86.machine.cpu import Machine
from schedules.x86.machine.dot_product import OF_BYTES, dot_of

MOST_JOINED = 8
# AMX multiplies zeros in a fraction of the time, and wants whole blocks of channels.
MOST_JOINED_BY_TILES = 16


def join_groups(
    w: Conv2dWorkload, filters: np.ndarray, target: Target, disabled: Collection[str]
) -> tuple[Conv2dWorkload, np.ndarray]:
    """Merge groups of a workload and its weights (OIHW); both unchanged if that gains nothing."""
    larger = joined_workload(w, target, disabled)
    joined = w.groups // larger.groups
    if joined == 1:
        return w, filters
    inputs, outputs = w.in_channels // w.groups, w.out_channels // w.groups
    shape = (w.groups // joined, joined, outputs, joined, inputs, *w.kernel)
    wide = np.zeros(shape, filters.dtype)
    apart = filters.reshape(w.groups // joined, joined, outputs, inputs, *w.kernel)
    for group in range(joined):
        wide[:, group, :, group] = apart[:, group]
    return larger, wide.reshape(w.out_channels, joined * inputs, *w.kernel)


def joined_workload(w: Conv2dWorkload, target: Target, disabled: Collection[str]) -> Conv2dWorkload:
    """The workload with the groups that `join_groups` makes."""
    dot = dot_of(w.dtype, w.weight_dtype, w.out_dtype)
    if dot is None or w.groups == 1 or w.is_depthwise or target.kind.name != "llvm":
        return w
    if dot is not OF_BYTES and winograd.OF_SHORT in disabled:
        return w
    inputs, outputs = w.in_channels // w.groups, w.out_channels // w.groups
    lanes = Machine.from_target(target).lanes(w.out_dtype)

    def fills_vectors(count: int) -> bool:
        whole = (count * inputs) % dot.size == 0 and (count * outputs) % lanes == 0
        return count == w.groups or whole

    def fills_tiles(count: int) -> bool:
        return conv2d_amx.has_whole_groups(replace(w, groups=w.groups // count), dot)

    joined = None
    if amx.multiplies(dot, target):
        joined = _first(w.groups, MOST_JOINED_BY_TILES, fills_tiles)
    joined = joined or _first(w.groups, MOST_JOINED, fills_vectors) or 1
    return replace(w, groups=w.groups // joined)


def _first(groups: int, most: int, suits: Callable[[int], bool]) -> int | None:
    """The smallest number of groups to join, of those that divide them."""
    counts = (count for count in range(1, min(groups, most) + 1) if groups % count == 0)
    return next(filter(suits, counts), None)
