"""Tuners that only look at indices: one after the other, or at random."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..task import Task
from .base import Tuner


class IndexBaseTuner(Tuner):
    """Base of tuners that enumerate config indices.

    `begin_idx`, `end_idx`: the range; the end is not in it. `range_idx`: first and last index.
    """

    def __init__(self, task: Task, range_idx: Sequence[int] | None = None) -> None:
        length = task.config_space.range_length
        self._has_range = range_idx is not None
        first, last = range_idx or (0, length - 1)
        self.begin_idx, self.end_idx = max(first, 0), min(last + 1, length)
        super().__init__(task)

    @property
    def range_length(self) -> int:
        """Number of indices in the range, those that filters refuse included."""
        return self.end_idx - self.begin_idx

    @property
    def visited_max(self) -> int:
        """How many configs the range has."""
        if not self._has_range:
            return len(self.space)
        return self.space.subrange_length(self.begin_idx, self.end_idx)

    def starts_with(self) -> int | None:
        fallback = super().starts_with()
        is_inside = fallback is not None and self.begin_idx <= fallback < self.end_idx
        return fallback if is_inside else None

    def _is_open(self, index: int) -> bool:
        return index not in self.visited and self.space.is_index_valid(index)


class GridSearchTuner(IndexBaseTuner):
    """Measures configs in ascending order of their index.

    Parameters
    ----------
    range_idx : (int, int), optional
        First and last index.
    """

    def reset(self) -> None:
        super().reset()
        self._index = self.begin_idx

    @property
    def index(self) -> int:
        """The index that is next; `end_idx` at the end."""
        while self._index < self.end_idx and not self._is_open(self._index):
            self._index += 1
        return self._index

    def has_next(self) -> bool:
        return self.index < self.end_idx

    def next_indices(self, count: int) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count and self.has_next():
            chosen.append(self._index)
            self._index += 1
        return chosen


class RandomTuner(IndexBaseTuner):
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
        super().__init__(task, range_idx)

    def has_next(self) -> bool:
        return len(self.visited) < (self.visited_max if self._has_range else self.range_length)

    def next_indices(self, count: int) -> list[int]:
        return self.space.sample_ints(count, self._rng, self.visited, self.begin_idx, self.end_idx)
