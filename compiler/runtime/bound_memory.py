"""Address ranges of the inputs and weights of an executor, to find results that alias them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any


class BoundMemory:
    """Address ranges of bound tensors.

    Every request asks `holds` for each result, so that the ranges are sorted when a tensor is
    bound, which is rare.

    `tensors`: None for a tensor that is not set.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._ranges = [_range_of(tensor) for tensor in tensors]
        self._sorted = False
        self._starts: list[int] = []
        self._ends: list[int] = []

    def bind(self, index: int, tensor: Any) -> None:
        """Replace one of the tensors."""
        self._ranges[index] = _range_of(tensor)
        self._sorted = False

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor is one of the bound ones or a view of one."""
        if not self._sorted:
            self._sort()
        address = tensor.data_ptr()
        position = bisect_right(self._starts, address)
        return position > 0 and address < self._ends[position - 1]

    def _sort(self) -> None:
        ranges = sorted(self._ranges)
        self._starts = [start for start, _ in ranges]
        # The running maximum makes one comparison enough where ranges overlap.
        self._ends = list(accumulate((end for _, end in ranges), max))
        self._sorted = True


def copied_where_bound(
    results: Iterable[Any], inputs: Iterable[Any], weights: BoundMemory
) -> list[Any]:
    """Results, copied where they alias an input or a weight."""
    bound = BoundMemory([*inputs])
    return [
        tensor.copyto(tensor.device) if bound.holds(tensor) or weights.holds(tensor) else tensor
        for tensor in results
    ]


def _range_of(tensor: Any) -> tuple[int, int]:
    if tensor is None:
        return 0, 0
    start = tensor.data_ptr()
    return start, start + (math.prod(tensor.shape) * _bits_of(tensor.dtype) + 7) // 8


@lru_cache(maxsize=64)
def _bits_of(dtype: Any) -> int:
    return int(dtype.bits * dtype.lanes)
