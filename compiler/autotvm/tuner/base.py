"""Base of all tuners: the measuring loop, the best config and the measurement history."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from schedules.config import ConfigEntity

from ...measure.candidate import MeasureErrorNo
from ...records.autotvm.record import MeasureInput
from ...records.autotvm.workload import digest
from ...records.log_target import log_target
from ...records.measure_result import MeasureResult
from ...records.untrusted_json import mean_seconds
from ..measure import as_measured, measure_batch, set_task
from ..task import Task, TaskCandidate

logger = logging.getLogger("baton.autotvm")

Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], None]


class Tuner:
    """Measures configs of a task, no config twice, the fallback's first.

    Attributes
    ----------
    task : Task
    best_config : ConfigEntity or None
    best_flops : float
        Operations per second of the best config; 0 before one worked.
    best_measure_pair : (MeasureInput, MeasureResult) or None
    best_iter : int
        The trial that found it.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.space = task.config_space
        self.visited: set[int] = set()
        self._has_begun = False
        self.reset()

    def reset(self) -> None:
        """Forget results; configs that were measured are not measured again."""
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter = 0
        self.error_ct_threshold = 150

    # --- what a tuner implements -----------------------------------------------------------

    def has_next(self) -> bool:
        """Whether a config is left."""
        return len(self.visited) < self.space.range_length

    @property
    def visited_max(self) -> int:
        """How many configs there are to measure."""
        return len(self.space)

    def next_indices(self, count: int) -> list[int]:
        """At most `count` indices to measure next; none of `visited`, no two the same."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements."""

    def starts_with(self) -> int | None:
        """The index to measure before all others: the fallback's, if there is one."""
        fallback = self.task.fallback
        return None if fallback is None else fallback.index

    def take(self, index: int) -> None:
        """Count a config as measured that `next_indices` did not choose."""
        self.visited.add(index)

    # --- the loop --------------------------------------------------------------------------

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Configs to measure next; fewer, or none, when the space is exhausted."""
        chosen: list[int] = []
        first = None if self._has_begun else self.starts_with()
        if first is not None:
            chosen.append(first)
            self.take(first)
        self._has_begun = True
        if len(chosen) < batch_size and self.has_next():
            more = self.next_indices(batch_size - len(chosen))
            self.visited.update(more)
            chosen += more
        return [self.space.get(index) for index in chosen]

    def tune(
        self,
        n_trial: int,
        measure_option: dict[str, Any],
        early_stopping: int | None = None,
        callbacks: Iterable[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure up to `n_trial` configs.

        Parameters
        ----------
        measure_option : dict
            From `autotvm.measure_option`.
        early_stopping : int, optional
            Stop after this many trials without an improvement.
        callbacks : iterable of (tuner, inputs, results) -> None
            Called with each batch that was measured.
        si_prefix : str
            Unit of the rates in log messages: "", "K", "M", "G" or "T".
        """
        callbacks, messages = tuple(callbacks), Counter[str]()
        batch_size = max(getattr(measure_option["builder"], "n_parallel", 1) or 1, 1)
        trial, errors, worked = 0, 0, self.best_config is not None
        set_task(measure_option, self.task)
        while trial < n_trial:
            configs = self.next_batch(min(batch_size, n_trial - trial))
            if not configs:
                break
            results = measure_batch(
                measure_option, [TaskCandidate(self.task, config) for config in configs]
            )
            inputs = [
                MeasureInput(self.task.target, self.task.logged, config, config.index)
                for config in configs
            ]
            for inp, result in zip(inputs, results):
                trial += 1
                errors = 0 if result.is_right else errors + 1
                worked = worked or result.is_right
                if not result.is_right:
                    messages[f"{MeasureErrorNo(result.error_no).name}: {result.error_msg}"] += 1
                self.note(inp, result, trial)
            self._log(trial, n_trial, results, errors, si_prefix)
            self.update(inputs, results)
            for callback in callbacks:
                callback(self, inputs, results)
            if early_stopping is not None and trial >= self.best_iter + early_stopping:
                logger.debug("stopped early: nothing better in %d trials", early_stopping)
                break
        if trial and not worked:
            common = "; ".join(f"{text} ({count})" for text, count in messages.most_common(3))
            logger.warning("%s: no config worked. %s", self.task, common)

    def note(self, inp: MeasureInput, result: MeasureResult, trial: int = 0) -> None:
        """Keep a measurement if it is the best so far; `trial` is what made it."""
        flops = self.task.flop / mean_seconds(result.costs, result.error_no)
        if flops > self.best_flops:
            self.best_flops, self.best_config = flops, inp.config
            self.best_measure_pair, self.best_iter = (inp, result), trial

    def _log(
        self,
        trial: int,
        n_trial: int,
        results: Sequence[MeasureResult],
        errors: int,
        si_prefix: str,
    ) -> None:
        level = logging.DEBUG if errors < self.error_ct_threshold else logging.WARNING
        scale = SI_SCALE[si_prefix]
        messages = dict.fromkeys(each.error_msg for each in results if each.error_msg)
        logger.log(
            level,
            "%s: %d/%d, best %.2f %sFLOPS, error numbers %s%s",
            self.task.name,
            trial,
            n_trial,
            self.best_flops / scale,
            si_prefix,
            [int(result.error_no) for result in results],
            "".join(f"; {text}" for text in messages),
        )

    # --- history ---------------------------------------------------------------------------

    def load_history(
        self, data_set: Iterable[tuple[MeasureInput, Any]], min_seed_records: int = 500
    ) -> None:
        """Take what was measured before.

        Configs of this very task and target are not measured again, and the best of them is the
        tuner's best. `XGBTuner` also learns from them, and from records of other tasks of the same
        template when there are `min_seed_records`.
        """
        own = digest(self.task.workload)
        text = str(log_target(self.task.target))
        pairs = [pair for pair in data_set if pair[0].task.name == self.task.name]
        mine = [
            (inp, result)
            for inp, result in pairs
            if digest(inp.task.workload) == own and str(log_target(inp.target)) == text
        ]
        for inp, result in mine:
            index = self.space.index_of(inp.config)
            if index is None:
                continue
            self.take(index)
            self._has_begun = True
            known = MeasureInput(inp.target, inp.task, self.space.get(index), index)
            self.note(known, as_measured(result), 0)
        self.learn(mine, pairs, min_seed_records)

    def learn(
        self,
        own: Sequence[tuple[MeasureInput, Any]],
        same_template: Sequence[tuple[MeasureInput, Any]],
        min_seed_records: int,
    ) -> None:
        """Train the cost model, if there is one, on a history."""

    def set_error_threshold(self, threshold: int) -> None:
        """Set the number of consecutive failures that causes a warning."""
        self.error_ct_threshold = threshold


SI_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
