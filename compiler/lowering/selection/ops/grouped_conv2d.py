"""Makes grouped convolutions of narrow groups convolutions of groups as wide as a vector.

    groups of 4 channels, vectors of 16

      weights of 4 groups   a . . .   in block-diagonal form, a dot is a block of zeros
                            . b . .
                            . . c .
                            . . . d

A group of four output channels fills a quarter of a vector for each of its four inputs; four of
them in one fill a whole vector for each of their sixteen inputs. Those are as many instructions,
but data stays in the blocks that the operators around it work on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm.target import Target

from schedules.conv2d import Conv2dWorkload
from schedules.x86.machine import Machine
from schedules.x86.register_tile import channel_block, fewest_vectors


def groups_to_merge(workload: Conv2dWorkload, target: Target) -> int:
    """How many groups to make one of: 1 where groups fill vectors, or merging would cost more.

    Only CPU targets that TVM's LLVM code generator serves gain from it.
    """
    if workload.groups == 1 or workload.is_depthwise or not workload.constant_weight:
        return 1
    if target.kind.name != "llvm" or workload.dtype != workload.out_dtype:
        return 1
    lanes = Machine.from_target(target).lanes(workload.dtype)
    per_group = workload.in_channels // workload.groups
    channels = workload.out_channels // workload.groups

    def cost(count: int) -> tuple[int, int, int]:
        """Multiply-adds of vectors for each pixel, then narrow blocks, then more weights."""
        groups, together = workload.groups // count, channels * count
        width = fewest_vectors if groups == 1 else channel_block
        block = width(together, lanes)
        return groups * -(-together // block) * per_group * count, -block, count

    return min((n for n in range(1, workload.groups + 1) if workload.groups % n == 0), key=cost)


def merge_groups(
    workload: Conv2dWorkload, weight: np.ndarray, count: int
) -> tuple[Conv2dWorkload, np.ndarray]:
    """The same convolution with `count` groups in each of its own.

    Parameters
    ----------
    weight : array
        (O, I / groups, KH, KW).

    Returns
    -------
    The workload, and its weights (O, count * I / groups, KH, KW).
    """
    out, per_group, *kernel = weight.shape
    merged = np.zeros((out, count, per_group, *kernel), weight.dtype)
    every = np.arange(out)
    merged[every, every // (out // workload.groups) % count] = weight
    return (
        replace(workload, groups=workload.groups // count),
        merged.reshape(out, count * per_group, *kernel),
    )
