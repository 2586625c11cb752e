"""A genetic tuner: configs as genes, one knob each; the fitness is the measured rate."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from ...measure.candidate import MeasureResult
from ...records.autotvm.record import MeasureInput
from ..task import Task
from .base import Tuner

MOST_TRIES = 200


class GATuner(Tuner):
    """Breeds the next generation from the best configs of the last.

    Parameters
    ----------
    pop_size : int
        Configs of one generation.
    elite_num : int
        Best configs ever that stay parents.
    mutation_prob : float
        For each knob of a child.
    seed : int, optional
        For the same sequence again, given the same measurements.
    """

    def __init__(
        self,
        task: Task,
        pop_size: int = 100,
        elite_num: int = 3,
        mutation_prob: float = 0.1,
        seed: int | None = None,
    ) -> None:
        self.pop_size = min(pop_size, task.config_space.range_length)
        self.elite_num = min(elite_num, self.pop_size)
        self.mutation_prob = mutation_prob
        self._rng = random.Random(seed)
        super().__init__(task)

    def reset(self) -> None:
        super().reset()
        self._scores: dict[int, float] = {}
        self._elites: list[int] = []
        self._generation = self.space.sample_ints(self.pop_size, self._rng, self.visited)

    def next_indices(self, count: int) -> list[int]:
        self._generation = [index for index in self._generation if index not in self.visited]
        if not self._generation:
            self._generation = self._breed()
        chosen, self._generation = self._generation[:count], self._generation[count:]
        return chosen

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results):
            rate = self.task.flop / float(np.mean(result.costs)) if result.is_right else 0.0
            self._scores[inp.index] = rate

    def _breed(self) -> list[int]:
        """A generation of configs that were not measured."""
        if not self._scores:
            return self.space.sample_ints(self.pop_size, self._rng, self.visited)
        parents = sorted(self._scores, key=lambda index: -self._scores[index])
        self._elites = parents[: self.elite_num]
        pool = list(dict.fromkeys([*self._elites, *parents[: self.pop_size]]))
        weights = [self._scores[index] + 1e-9 for index in pool]
        children: dict[int, None] = {}
        for _ in range(MOST_TRIES * self.pop_size):
            if len(children) == self.pop_size:
                break
            mother, father = self._rng.choices(pool, weights, k=2)
            child = self._child(mother, father)
            if child not in self.visited and self.space.is_index_valid(child):
                children[child] = None
        missing = self.pop_size - len(children)
        more = self.space.sample_ints(missing, self._rng, {*self.visited, *children})
        self._scores = {index: self._scores[index] for index in pool}
        return [*children, *more]

    def _child(self, mother: int, father: int) -> int:
        one, other = self.space.knobs_of(mother), self.space.knobs_of(father)
        cut = self._rng.randrange(len(one)) if one else 0
        genes = [*one[:cut], *other[cut:]]
        for knob, dim in enumerate(self.space.dims):
            if self._rng.random() < self.mutation_prob:
                genes[knob] = self._rng.randrange(dim)
        return self.space.index_of_knobs(genes)
