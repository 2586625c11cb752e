"""A genetic tuner: configs as genes, one knob each; the fitness is the measured rate."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...records.autotvm.record import MeasureInput
from ...records.measure_result import MeasureResult
from ...records.untrusted_json import mean_seconds
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

    Attributes
    ----------
    genes : list of list of int
        The configs of the generation that is being measured, as `ConfigSpace.point2knob` has them.
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
        self._left: list[int] = []
        super().__init__(task)

    def reset(self) -> None:
        super().reset()
        self._scores: dict[int, float] = {}
        self._elites: list[int] = []
        self.visited.difference_update(self._left)
        self._breed()
        self.pop_size = min(self.pop_size, len(self.genes) or 1)

    def has_next(self) -> bool:
        return bool(self._left) or super().has_next()

    def take(self, index: int) -> None:
        super().take(index)
        if index in self._left:
            self._left.remove(index)

    def next_indices(self, count: int) -> list[int]:
        if not self._left:
            self._breed()
        chosen, self._left = self._left[:count], self._left[count:]
        return chosen

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results):
            rate = self.task.flop / mean_seconds(result.costs, result.error_no)
            self._scores[inp.config.index] = rate

    def _breed(self) -> None:
        """Make the next generation, of configs that were not measured."""
        self._left = self._children()
        self.visited.update(self._left)
        self.genes = [self.space.point2knob(index) for index in self._left]

    def _children(self) -> list[int]:
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
        one, other = self.space.point2knob(mother), self.space.point2knob(father)
        cut = self._rng.randrange(len(one)) if one else 0
        genes = [*one[:cut], *other[cut:]]
        for knob, dim in enumerate(self.space.dims):
            if self._rng.random() < self.mutation_prob:
                genes[knob] = self._rng.randrange(dim)
        return self.space.knob2point(genes)
