"""Tuners that only look at indices: one after the other, or at random."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..task import Task
from .base import Tuner


class GridSearchTuner(Tuner):
    """Measures configs in ascending order of their index.

    Parameters
    ----------
    range_idx : (int, int), optional
        First and last index.
    """

    def __init__(self, task: Task, range_idx: Sequence[int] | None = None) -> None:
        first, last = range_idx or (0, task.config_space.range_length - 1)
        self._next, self._end = max(first, 0), min(last + 1, task.config_space.range_length)
        super().__init__(task)

    def has_next(self) -> bool:
        while self._next < self._end and not self._is_open(self._next):
            self._next += 1
        return self._next < self._end

    def _is_open(self, index: int) -> bool:
        return index not in self.visited and self.space.is_index_valid(index)

    def next_indices(self, count: int) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count and self.has_next():
            chosen.append(self._next)
            self._next += 1
        return chosen


class RandomTuner(Tuner):
    """Measures configs at random, none twice.

    Parameters
    ----------
    range_idx : (int, int), optional
        First and last index.
    seed : int, optional
        For the same sequence again.
    """

    def __init__(
        self, task: Task, range_idx: Sequence[int] | None = None, seed: int | None = None
    ) -> None:
        self._rng = random.Random(seed)
        self._range = None if range_idx is None else (range_idx[0], range_idx[1] + 1)
        super().__init__(task)

    def next_indices(self, count: int) -> list[int]:
        if self._range is None:
            return self.space.sample_ints(count, self._rng, self.visited)
        left = [
            index for index in range(*self._range)
            if index not in self.visited and self.space.is_index_valid(index)
        ]  # fmt: skip
        return self._rng.sample(left, min(count, len(left)))
