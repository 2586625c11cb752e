"""Horizontal sums of n vectors of n lanes, combined into one vector.

Shuffles combine two vectors into one with twice the number of partial sums. They stay within 128
bits if partial sums are that small:

    (a0 a1 a2 a3), (b0 b1 b2 b3)  ->  (a0 a1 b0 b1) + (a2 a3 b2 b3)
"""

from __future__ import annotations

import functools

_LANES_OF_128_BITS = 4


def joins(lanes: int) -> list[tuple[int, int, list[int], list[int]]]:
    """List the steps: the vector that is replaced by its sum with the second one, and the lanes of
    both that are added, numbered through both vectors."""
    steps = []
    size, distance = lanes, 1
    while distance < lanes:
        masks = _half(lanes, size, 0), _half(lanes, size, size // 2)
        for left in range(0, lanes, 2 * distance):
            steps.append((left, left + distance, *masks))
        size, distance = size // 2, 2 * distance
    return steps


def _half(lanes: int, size: int, offset: int) -> list[int]:
    """Select one half of each partial sum, of `size` lanes, from two vectors."""
    group = max(size, _LANES_OF_128_BITS)
    return [
        vector * lanes + block + offset + lane
        for first in range(0, lanes, group)
        for vector in (0, 1)
        for block in range(first, first + group, size)
        for lane in range(size // 2)
    ]


@functools.cache
def places(lanes: int) -> tuple[int, ...]:
    """Return the order of the vectors that puts each sum into the lane of its number."""
    owners = [[vector] * lanes for vector in range(lanes)]
    for left, right, low, _ in joins(lanes):
        both = owners[left] + owners[right]
        owners[left] = [both[lane] for lane in low]
    return tuple(owners[0])
