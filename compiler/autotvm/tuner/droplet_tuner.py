"""A tuner that walks downhill: from the best config to the fastest of those around it."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from ...records.autotvm.record import MeasureInput
from ...records.measure_result import MeasureResult
from ..task import Task
from .base import Tuner

LEAST_BATCH = 16
MOST_NeighborS = 256
"""Configs around the best one that are looked at for one distance."""


class DropletTuner(Tuner):
    """Measures the configs around the best one; where none is faster, those farther away.

    Parameters
    ----------
    start_position : sequence of int, optional
        Place of each knob's candidate in the config to start at; that of the fallback by default.
    pvalue : float
        A config counts as faster where chance alone gives such a difference of the repeats' means
        less often than this; with a single repeat the faster one wins.

    Attributes
    ----------
    best_choice : (int, list of int, sequence of float)
        Index, places and seconds of the config that the walk is at; index -1 before the first.
    execution : int
        How far away from it configs are looked at, in candidates of a knob.
    total_execution : int
        The farthest.
    """

    def __init__(
        self, task: Task, start_position: Sequence[int] | None = None, pvalue: float = 0.05
    ) -> None:
        self.dims = task.config_space.dims or [1]
        self.pvalue = pvalue
        self.step, self.total_execution = 1, max(self.dims)
        self.batch = max(LEAST_BATCH, os.cpu_count() or 1)
        self._start = None if start_position is None else list(start_position)
        super().__init__(task)

    def reset(self) -> None:
        super().reset()
        self.best_choice: tuple[int, list[int], Sequence[float]] = (
            -1, [0] * len(self.dims), [float("inf")]
        )  # fmt: skip
        self.execution = 1
        self._next: list[int] = []

    def starts_with(self) -> int | None:
        if self._start is not None:
            return self.space.knob2point(self._start)
        fallback = super().starts_with()
        if fallback is not None:
            return fallback
        return next(iter(self.space.sample_ints(1)), None)

    def has_next(self) -> bool:
        if self.best_choice[0] < 0:  # nothing worked yet
            return super().has_next()
        while not self._next and self.execution <= self.total_execution:
            near = itertools.islice(self._around(self.execution), MOST_NeighborS)
            self._next = list(dict.fromkeys(near))
            self.execution += self.step
        return bool(self._next)

    def next_indices(self, count: int) -> list[int]:
        if self.best_choice[0] < 0:
            return self.space.sample_ints(count, without=self.visited)
        chosen, self._next = self._next[:count], self._next[count:]
        return chosen

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results):
            index = inp.config.index
            if result.is_right and self._is_faster(result.costs):
                self.best_choice = (index, self.space.point2knob(index), result.costs)
                self.execution, self._next = 1, []

    def _is_faster(self, costs: Sequence[float]) -> bool:
        best = self.best_choice[2]
        if np.mean(costs) >= np.mean(best):
            return False
        if len(costs) < 2 or len(best) < 2:
            return True
        error = math.sqrt(np.var(costs, ddof=1) / len(costs) + np.var(best, ddof=1) / len(best))
        apart = float(np.mean(best) - np.mean(costs))
        by_chance = 2 * NormalDist().cdf(-apart / error) if error else 0.0
        return by_chance <= self.pvalue

    def _around(self, far: int) -> Iterator[int]:
        """Indices that differ from the best config by so much in some knobs, few knobs first."""
        knobs = [knob for knob, dim in enumerate(self.dims) if dim > 1]
        for count in range(1, len(knobs) + 1):
            for moved in itertools.combinations(knobs, count):
                for sign in (far, -far):
                    places = list(self.best_choice[1])
                    for knob in moved:
                        places[knob] = min(max(places[knob] + sign, 0), self.dims[knob] - 1)
                    index = self.space.knob2point(places)
                    if index not in self.visited and self.space.is_index_valid(index):
                        yield index
