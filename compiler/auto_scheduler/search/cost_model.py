"""Cost models: how fast schedules are thought to be before they are measured.

scores = XGBModel().predict(task, states)   # larger is faster
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RecordError
from ...records.auto_scheduler.record import PathLike, Record, scan
from ...records.measure_pair import MeasuredTask, MeasureInput
from ...support.numpy_files import read_npz
from ..require_extras import check_installed

if TYPE_CHECKING:
    from ..task import SearchTask

NO_SCHEDULE = -float("inf")
"""Score of a state that can't be scheduled."""


class CostModel:
    """Base of cost models. `kind`: "random", "xgb", or "own" for a script's own."""

    kind = "own"

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[Any]) -> None:
        """Learn from measurements; the base learns nothing."""

    def predict(self, task: SearchTask, states: Sequence[Any]) -> list[float]:
        """A score for each state of a task; the larger, the faster it is thought to be."""
        raise NotImplementedError

    def searched_with(self, tasks: Sequence[SearchTask]) -> Any:
        """The model for MetaSchedule's search of these tasks."""
        from .states import CostModelOfStates

        return CostModelOfStates(self, tasks)


class PythonBasedModel(CostModel):
    """Base of user-defined cost models, with `predict` and optionally `update`.

    class Shortest(PythonBasedModel):
        def predict(self, task, states):
            return [-len(str(state)) for state in states]
    """


class RandomModel(CostModel):
    """No model: candidates are as good as they are rare."""

    kind = "random"

    def predict(self, task: SearchTask, states: Sequence[Any]) -> list[float]:
        """Random numbers from 0 to 1."""
        return [float(score) for score in np.random.uniform(size=len(states))]

    def searched_with(self, tasks: Sequence[SearchTask]) -> Any:
        return self.kind


class XGBModel(CostModel):
    """Gradient-boosted trees over features of the loops, trained on what is measured.

    Parameters
    ----------
    verbose_eval : int
        Accepted; training is silent.
    num_warmup_sample : int
        Number of measurements before which scores are random.
    seed : int, optional
        Of the trees.
    model_file : path, optional
        `load` this.
    adaptive_training : bool
        Train anew only when there is a fifth more to learn from.
    """

    kind = "xgb"

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: PathLike | None = None,
        adaptive_training: bool = True,
    ) -> None:
        self.num_warmup_sample = num_warmup_sample
        self.seed = seed
        self.adaptive_training = adaptive_training
        self.log_file: PathLike | None = None
        self._learnt_from_log: set[str] = set()
        self._made: Any = None
        if model_file is not None:
            self.load(model_file)

    @property
    def _model(self) -> Any:
        """MetaSchedule's model, made when it is first wanted."""
        if self._made is None:
            from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig
            from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBModel as Trees

            check_installed("psutil", "xgboost")
            config = XGBConfig() if self.seed is None else XGBConfig(seed=self.seed)
            self._made = Trees(
                config=config,
                num_warmup_samples=self.num_warmup_sample,
                adaptive_training=self.adaptive_training,
            )
        return self._made

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[Any]) -> None:
        """Learn from measurements; what can't be scheduled is passed over."""
        from .states import candidate_of, runner_result, scoring_context

        pairs = zip(inputs, results, strict=True)
        for _, group in itertools.groupby(pairs, lambda pair: _which(pair[0].task)):
            measured = list(group)
            task = _whole_task(measured[0][0])
            known = [(candidate_of(task, inp.state), result) for inp, result in measured]
            known = [(candidate, result) for candidate, result in known if candidate is not None]
            candidates = [candidate for candidate, _ in known]
            times = [runner_result(result) for _, result in known]
            self._model.update(scoring_context(task), candidates, times)

    def predict(self, task: SearchTask, states: Sequence[Any]) -> list[float]:
        """A score for each state, 1 for the fastest known; minus infinity for one that can't be."""
        from .states import candidate_of, scoring_context

        self._learn_from_log(task)
        candidates = [candidate_of(task, state) for state in states]
        right = [candidate for candidate in candidates if candidate is not None]
        scores = iter(self._model.predict(scoring_context(task), right) if right else ())
        return [NO_SCHEDULE if each is None else float(next(scores)) for each in candidates]

    def searched_with(self, tasks: Sequence[SearchTask]) -> Any:
        return self._model

    def update_from_file(self, file_name: PathLike, n_lines: int | None = None) -> None:
        """Learn from a log: a search starts from its measurements, as with `PreloadMeasuredStates`.

        Raises RecordError: `n_lines` is given: the log counts as a whole.
        """
        if n_lines is not None:
            raise RecordError(f"{file_name}: n_lines={n_lines}; cut the log to the lines you want")
        self.log_file = file_name
        self._learnt_from_log.clear()

    def _learn_from_log(self, task: SearchTask) -> None:
        if self.log_file is None or task.workload_key in self._learnt_from_log:
            return
        self._learnt_from_log.add(task.workload_key)
        pairs = [
            (MeasureInput(task, inp.state), result)
            for record in scan(self.log_file)
            if record.workload_key in (task.workload_key, task.registered_key)
            and (not isinstance(record, Record) or record.has_trace)
            for inp, result in [record]
        ]
        if pairs:
            self.update(*zip(*pairs, strict=True))

    def save(self, file_name: PathLike) -> None:
        """Write the trees and what they were trained on."""
        groups = list(self._model.data.values())
        booster = self._model.booster
        arrays: dict[str, Any] = {
            "names": np.array([group.group_hash for group in groups], dtype=str),
            "trees": np.frombuffer(b"" if booster is None else booster.save_raw(), np.uint8),
        }
        for number, group in enumerate(groups):
            arrays[f"costs{number}"] = group.costs
            arrays[f"rows{number}"] = np.array([len(each) for each in group.features])
            arrays[f"features{number}"] = np.concatenate(group.features)
        with Path(file_name).open("wb") as file:
            np.savez_compressed(file, **arrays)

    def load(self, file_name: PathLike) -> None:
        """Read what `save` wrote; RecordError for another file. Models that TVM saved are none."""
        import xgboost
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup

        model = self._model
        try:
            arrays = read_npz(file_name)
            model.data.clear()
            for number, name in enumerate(map(str, arrays["names"])):
                rows = np.cumsum(arrays[f"rows{number}"])[:-1]
                features = np.split(arrays[f"features{number}"], rows)
                model.data[name] = FeatureGroup(name, features, arrays[f"costs{number}"])
            trees = arrays["trees"].tobytes()
            model.booster = None
            if trees:
                model.booster = xgboost.Booster()
                model.booster.load_model(bytearray(trees))
        except (OSError, ValueError, KeyError, xgboost.core.XGBoostError) as error:
            raise RecordError(
                f"cost model {str(file_name)!r} is not one that XGBModel.save wrote: {error}"
            ) from error
        model.data_size = sum(len(group.costs) for group in model.data.values())


def _which(task: MeasuredTask | SearchTask) -> tuple[str, str]:
    return task.workload_key, str(task.target)


def _whole_task(inp: MeasureInput) -> SearchTask:
    from ... import auto_scheduler  # whose tasks search with this module

    is_told = isinstance(inp.task, MeasuredTask)
    return (auto_scheduler.recover_measure_input(inp) if is_told else inp).task
