"""A tuner with a cost model: XGBoost guesses rates, simulated annealing looks for high guesses."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from schedules.config import InstantiationError

from ...errors import BatonError
from ...records.autotvm.record import MeasureInput
from ...records.measure_result import MeasureResult
from ...records.untrusted_json import mean_seconds
from ..measure import as_measured
from ..task import Task
from .base import Tuner

FEATURES = ("knob", "itervar", "curve")
LOSSES = {"reg": "reg:squarederror", "rank": "rank:pairwise", "rank-binary": "rank:ndcg"}
ROUNDS = 120
LEAST_TO_LEARN = 8
RANDOM_SHARE = 0.05
NO_KERNEL = -1e6
# Looking at the loops of a config means making its kernel, which knobs don't need.
ANNEALING = {"knob": (128, 80), "itervar": (48, 3), "curve": (48, 3)}


class XGBTuner(Tuner):
    """Measures the configs that XGBoost, trained on earlier measurements, predicts to be fast.

    Parameters
    ----------
    plan_size : int
        Measurements between two trainings of the model.
    feature_type : str
        "itervar", "knob" or "curve"; see `features`. Only loop features learn from other tasks.
    loss_type : str
        "reg" for the rate itself, "rank" or "rank-binary" for its order.
    num_threads : int, optional
        Threads of XGBoost; None means all CPUs. One is enough for a few hundred rows.
    diversity_filter_ratio : float, optional
        Take this multiple of `plan_size` proposals and keep the most diverse configs.
    seed : int, optional
        Seed that repeats the sequence, given the same measurements.

    Attributes
    ----------
    xs, ys : list
        The indices of the configs that were measured, and their rates in FLOP/s; 0 for those that
        did not run.

    Raises
    ------
    BatonError
        XGBoost is missing, or a type is not known.
    """

    def __init__(
        self,
        task: Task,
        plan_size: int = 64,
        feature_type: str = "itervar",
        loss_type: str = "reg",
        num_threads: int | None = 1,
        optimizer: str = "sa",
        diversity_filter_ratio: float | None = None,
        log_interval: int = 50,
        seed: int | None = None,
    ) -> None:
        if feature_type not in FEATURES or loss_type not in LOSSES or optimizer != "sa":
            raise BatonError(
                f"XGBTuner(feature_type={feature_type!r}, loss_type={loss_type!r}, "
                f"optimizer={optimizer!r}): there are the features {', '.join(FEATURES)}, the "
                f"losses {', '.join(LOSSES)}, and the optimizer 'sa'"
            )
        if importlib.util.find_spec("xgboost") is None:
            raise BatonError("XGBTuner needs XGBoost; pip install 'baton-tvm[tune]'")
        self.plan_size = plan_size
        self.feature_type = feature_type
        self.loss_type = loss_type
        self.num_threads = num_threads
        self.diversity_filter_ratio = diversity_filter_ratio
        self._rng = random.Random(seed)
        self._features: dict[int, np.ndarray | None] = {}
        super().__init__(task)

    def reset(self) -> None:
        super().reset()
        self.xs: list[int] = []
        self.ys: list[float] = []
        self._transferred: tuple[np.ndarray, np.ndarray] | None = None
        self._plan: list[int] = []
        self._measured_since = 0
        self._model: Any = None

    @property
    def flops_max(self) -> float:
        """The best of `ys`."""
        return max(self.ys, default=0.0)

    # --- what to measure -------------------------------------------------------------------

    def next_indices(self, count: int) -> list[int]:
        learned = len(self.xs) + (0 if self._transferred is None else LEAST_TO_LEARN)
        if learned >= LEAST_TO_LEARN and (
            self._model is None or self._measured_since >= self._interval()
        ):
            self._fit()
            self._plan = self._anneal()
        self._plan = [index for index in self._plan if index not in self.visited]
        chosen: list[int] = []
        while len(chosen) < count and self._plan and self._rng.random() >= RANDOM_SHARE:
            chosen.append(self._plan.pop(0))
        chosen += self.space.sample_ints(count - len(chosen), self._rng, {*self.visited, *chosen})
        self._measured_since += len(chosen)
        return chosen

    def _interval(self) -> int:
        """The first trainings come sooner: the model learns most then."""
        return min(self.plan_size, max(LEAST_TO_LEARN, len(self.xs) // 2))

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results):
            self.xs.append(inp.index)
            self.ys.append(self._rate(result))

    def _rate(self, result: Any) -> float:
        return self.task.flop / mean_seconds(result.costs, result.error_no)

    def learn(
        self,
        own: Sequence[tuple[MeasureInput, Any]],
        same_template: Sequence[tuple[MeasureInput, Any]],
        min_seed_records: int,
    ) -> None:
        for inp, result in own:
            index = self.space.index_of(inp.config)
            if index is not None:
                self.xs.append(index)
                self.ys.append(self._rate(as_measured(result)))
        others = [pair for pair in same_template if pair not in own]
        if self.feature_type != "knob" and len(others) >= min_seed_records:
            self._transfer(others)

    def _transfer(self, pairs: Sequence[tuple[MeasureInput, Any]]) -> None:
        """Loops of other tasks' configs; each task's rates relative to its best."""
        tasks: dict[tuple, Task] = {}
        rows, rates, groups = [], [], []
        for inp, result in pairs:
            task = tasks.setdefault(
                inp.task.workload, Task(inp.task.name, inp.task.args, self.task.target)
            )
            try:
                rows.append(self._loop_features(task, inp.config))
                rates.append(task.flop / mean_seconds(result.costs, result.error_no))
                groups.append(inp.task.workload)
            except InstantiationError:
                rows = rows[: len(rates)]
        if not rates:
            return
        best = {group: max(r for r, g in zip(rates, groups) if g == group) for group in set(groups)}
        scaled = [rate / (best[group] or 1.0) for rate, group in zip(rates, groups)]
        self._transferred = np.stack(rows), np.asarray(scaled, "float32")

    # --- the model -------------------------------------------------------------------------

    def _fit(self) -> None:
        import xgboost

        self._measured_since = 0
        known = [
            (feature, rate)
            for index, rate in zip(self.xs, self.ys)
            if (feature := self._feature(index)) is not None
        ]
        best = max((rate for _, rate in known), default=0.0) or 1.0
        rows = [feature for feature, _ in known]
        rates = [rate / best for _, rate in known]
        if self._transferred is not None:
            rows = [*rows, *self._transferred[0]]
            rates = [*rates, *self._transferred[1]]
        if not rows:
            return
        data = self._matrix(rows)
        data.set_label(self._labels(np.asarray(rates, "float32")))
        if self.loss_type != "reg":
            data.set_group([len(rows)])
        settings = {
            "max_depth": 3,
            "eta": 0.3,
            "min_child_weight": 0,
            "gamma": 1e-4,
            "subsample": 1.0,
            "alpha": 0,
            "lambda": 1,
            "verbosity": 0,
            "seed": self._rng.randrange(1 << 30),
            "objective": LOSSES[self.loss_type],
            "nthread": self.num_threads,
        }
        self._model = xgboost.train(settings, data, num_boost_round=ROUNDS)

    def _matrix(self, rows: Sequence[np.ndarray]) -> Any:
        import xgboost

        return xgboost.DMatrix(np.stack(rows), nthread=self.num_threads)

    def _labels(self, rates: np.ndarray) -> np.ndarray:
        """XGBoost ranks by small integers: 0 to 30."""
        return rates if self.loss_type == "reg" else np.round(rates * 30)

    def _guess(self, indices: Sequence[int]) -> np.ndarray:
        """The model's scores, (n,); NO_KERNEL for configs that can't be made."""
        scores = np.full(len(indices), NO_KERNEL)
        rows = {
            place: feature
            for place, index in enumerate(indices)
            if (feature := self._feature(index)) is not None
        }
        if rows and self._model is not None:
            scores[list(rows)] = self._model.predict(self._matrix([*rows.values()]))
        return scores

    def _feature(self, index: int) -> np.ndarray | None:
        if index not in self._features:
            config = self.space.get(index)
            try:
                if self.feature_type == "knob":
                    from .features import knob_features

                    self._features[index] = knob_features(config, self.space.space_map)
                else:
                    self._features[index] = self._loop_features(self.task, config)
            except InstantiationError:  # this config has no kernel
                self._features[index] = None
        return self._features[index]

    def _loop_features(self, task: Task, config: Any) -> np.ndarray:
        from .features import curve_features, itervar_features

        made = itervar_features if self.feature_type == "itervar" else curve_features
        return made(task, config)

    # --- the search ------------------------------------------------------------------------

    def _anneal(self) -> list[int]:
        """Indices with high guesses, best first, that were not measured."""
        walkers, steps = ANNEALING[self.feature_type]
        best = sorted(zip(self.ys, self.xs), reverse=True)[: walkers // 4]
        points = [index for _, index in best]
        points += self.space.sample_ints(walkers - len(points), self._rng)
        scores = self._guess(points)
        seen: dict[int, float] = dict(zip(points, scores))
        for step in range(steps):
            heat = 1.0 - step / steps
            moved = [self.space.random_walk(index, self._rng) for index in points]
            after = self._guess(moved)
            seen.update(zip(moved, after))
            for place, (old, new) in enumerate(zip(scores, after)):
                gain = new - old
                if gain >= 0 or self._rng.random() < np.exp(np.clip(gain / (heat + 1e-5), -50, 0)):
                    points[place], scores[place] = moved[place], new
        ranked = sorted(
            (index for index, score in seen.items() if index not in self.visited
             and score > NO_KERNEL),
            key=lambda index: -seen[index],
        )  # fmt: skip
        return self._diverse(ranked)

    def _diverse(self, ranked: list[int]) -> list[int]:
        if not self.diversity_filter_ratio:
            return ranked[: self.plan_size]
        pool = ranked[: int(self.plan_size * self.diversity_filter_ratio)]
        kept: list[int] = []
        values: set[tuple[int, int]] = set()
        for index in pool:  # first those that bring a knob value that none before has
            fresh = set(enumerate(self.space.point2knob(index))) - values
            if fresh:
                values |= fresh
                kept.append(index)
        return (kept + [index for index in pool if index not in kept])[: self.plan_size]
