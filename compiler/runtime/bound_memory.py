"""Memory of the inputs and weights of an executor, to find results that alias it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any


class BoundMemory:
    """Address ranges of bound tensors.

    Parameters
    ----------
    tensors : sequence of tvm.runtime.Tensor or None
        Inputs, then weights; None for one that is not set.
    num_inputs : int
        Inputs change often and are few; weights change rarely and are many.
    """

    def __init__(self, tensors: Sequence[Any], num_inputs: int) -> None:
        self._num_inputs = num_inputs
        self._ranges = [_range_of(tensor) for tensor in tensors]
        self._sort_weights()

    def bind(self, index: int, tensor: Any) -> None:
        """Replace one of the tensors."""
        self._ranges[index] = _range_of(tensor)
        if index >= self._num_inputs:
            self._sort_weights()

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor is one of the bound ones or a view of one."""
        address = tensor.data_ptr()
        for start, end in self._ranges[: self._num_inputs]:
            if start <= address < end:
                return True
        position = bisect_right(self._starts, address)
        return position > 0 and address < self._ends[position - 1]

    def _sort_weights(self) -> None:
        weights = sorted(self._ranges[self._num_inputs :])
        self._starts = [start for start, _ in weights]
        # The running maximum makes one comparison enough where ranges overlap.
        self._ends = list(accumulate((end for _, end in weights), max))


def copied_where_bound(
    results: Iterable[Any], inputs: Iterable[Any], weights: BoundMemory
) -> list[Any]:
    """Results, copied where they alias an input or a weight."""
    ranges = [_range_of(tensor) for tensor in inputs]

    def aliases(tensor: Any) -> bool:
        address = tensor.data_ptr()
        return any(start <= address < end for start, end in ranges) or weights.holds(tensor)

    return [tensor.copyto(tensor.device) if aliases(tensor) else tensor for tensor in results]


def _range_of(tensor: Any) -> tuple[int, int]:
    if tensor is None:
        return 0, 0
    start = tensor.data_ptr()
    bits = math.prod(tensor.shape) * tensor.dtype.bits * tensor.dtype.lanes
    return start, start + (bits + 7) // 8
