"""The sums of the lanes of as many vectors as each has lanes, as one vector.

Two vectors become one, of twice as many partial sums, by shuffles that stay inside of 128 bits
where partial sums are as small as that:

    (a0 a1 a2 a3), (b0 b1 b2 b3)  ->  (a0 a1 b0 b1) + (a2 a3 b2 b3)
"""

from __future__ import annotations

import functools

_LANES_OF_128_BITS = 4


def joins(lanes: int) -> list[tuple[int, int, list[int], list[int]]]:
    """The steps: which vector is replaced by its sum with which one, and the lanes of both that are
    added, counted through both vectors."""
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
    """Where each vector has to stand so that its sum is in the lane of its number."""
    owners = [[vector] * lanes for vector in range(lanes)]
    for left, right, low, _ in joins(lanes):
        both = owners[left] + owners[right]
        owners[left] = [both[lane] for lane in low]
    return tuple(owners[0])
