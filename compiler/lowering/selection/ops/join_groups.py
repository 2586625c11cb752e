"""Makes one group of several where a group's channels leave most lanes of a vector empty.

128 channels, 32 groups of 4      8 groups of 16, whose weights between the old groups are zeros

A vector of dot products then has work in every lane, a quarter of it in vain; narrower ones have
no instruction. Of bfloat16, what is not a number spreads to the joined groups, as it does to
neighbours by Winograd's product: where that is disabled, groups of these stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from tvm.target import Target

from schedules.conv2d import Conv2dWorkload
from schedules.x86 import winograd
from schedules.x86.dots import OF_BYTES, Dot, dot_of
from schedules.x86.machine import Machine

MOST_JOINED = 8


def join_groups(
    w: Conv2dWorkload, filters: np.ndarray, target: Target, disabled: Collection[str]
) -> tuple[Conv2dWorkload, np.ndarray]:
    """The workload and its weights (OIHW) with fewer and larger groups.

    Both as they are where there is nothing to gain. `disabled` are implementations' names.
    """
    dot = dot_of(w.dtype, w.weight_dtype, w.out_dtype)
    if dot is None or w.groups == 1 or w.is_depthwise or target.kind.name != "llvm":
        return w, filters
    if dot is not OF_BYTES and winograd.OF_SHORT in disabled:
        return w, filters
    inputs, outputs = w.in_channels // w.groups, w.out_channels // w.groups
    lanes = Machine.from_target(target).lanes(w.out_dtype)
    joined = next(
        (
            count
            for count in range(1, min(w.groups, MOST_JOINED) + 1)
            if w.groups % count == 0
            and (count == w.groups or _is_whole(dot, count * inputs, count * outputs, lanes))
        ),
        1,
    )
    if joined == 1:
        return w, filters
    shape = (w.groups // joined, joined, outputs, joined, inputs, *w.kernel)
    wide = np.zeros(shape, filters.dtype)
    apart = filters.reshape(w.groups // joined, joined, outputs, inputs, *w.kernel)
    for group in range(joined):
        wide[:, group, :, group] = apart[:, group]
    return (
        replace(w, groups=w.groups // joined),
        wide.reshape(w.out_channels, joined * inputs, *w.kernel),
    )


def _is_whole(dot: Dot, inputs: int, outputs: int, lanes: int) -> bool:
    return inputs % dot.size == 0 and outputs % lanes == 0
