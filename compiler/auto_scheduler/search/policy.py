"""Search policies under Ansor's names: MetaSchedule's search and user-defined searches."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...records.auto_scheduler.record import PathLike
from ...records.measure_pair import MeasureInput, MeasureResult, State
from ...records.untrusted_json import mean_seconds
from .callbacks import PrintTableInfo
from .cost_model import CostModel, XGBModel
from .cost_model import PythonBasedModel as PythonBasedModel
from .cost_model import RandomModel as RandomModel
from .measurer import ProgramMeasurer

if TYPE_CHECKING:
    from ..task import SearchTask
    from .options import TuningOptions


_POPULATION = 50
_SEEDS = 2**31 - 1  # that MetaSchedule takes

logger = logging.getLogger("baton.auto_scheduler")


class PreloadMeasuredStates:
    """Go on from a log: what it has is not measured again."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = filename


class PreloadCustomSketchRule:
    """Ansor's user-defined rule to make sketches; not called, as it works on Ansor's states."""

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self, meet_condition_func: Any, apply_func: Any, rule_name: str = "CustomSketchRule"
    ) -> None:
        logger.warning(
            "sketch rule %s is not applied: schedules come from MetaSchedule's rules; "
            "register a tvm.s_tir.meta_schedule.ScheduleRule to add one",
            rule_name,
        )


class SearchPolicy:
    """Base of searches. A user-defined search chooses what each round measures.

    class First(SearchPolicy):
        def continue_search_one_round(self, num_measure, measurer):
            inputs = [MeasureInput(self.search_task, state) for state in ...]
            return inputs, measurer.measure(inputs, self)

    Parameters
    ----------
    task : SearchTask

    Attributes
    ----------
    search_task : SearchTask
    """

    def __init__(self, task: SearchTask) -> None:
        self.search_task = task

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Measure at most `num_measure` schedules; none when the search is exhausted.

        Returns
        -------
        What was measured, and its times.
        """
        raise NotImplementedError

    def search(self, options: TuningOptions) -> None:
        """Measure round after round, until the trials of the options are used up."""
        measurer = ProgramMeasurer.of(options)
        left, best, since = options.num_measure_trials, math.inf, 0
        try:
            while left > 0:
                wanted = min(options.num_measures_per_round, left)
                _, results = self.continue_search_one_round(wanted, measurer)
                left -= len(results)
                cost = min((mean_seconds(r.costs, r.error_no) for r in results), default=math.inf)
                since = 0 if cost < best else since + len(results)
                best = min(best, cost)
                patience = options.early_stopping
                if not results or (patience is not None and since >= patience):
                    break
        finally:
            options.close()


class EmptyPolicy(SearchPolicy):
    """Measures a task as it is declared, once."""

    def __init__(
        self, task: SearchTask, init_search_callbacks: Sequence[Any] | None = None
    ) -> None:
        super().__init__(task)
        self._is_measured = False

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        if self._is_measured:
            return [], []
        self._is_measured = True
        inputs = [MeasureInput(self.search_task, self.search_task.compute_dag.init_state)]
        return inputs, measurer.measure(inputs, self)


class SketchPolicy(SearchPolicy):
    """An evolutionary search by MetaSchedule, guided by a cost model.

    Parameters
    ----------
    task : SearchTask
    program_cost_model : XGBModel, RandomModel or PythonBasedModel, optional
        XGBoost by default.
    params : dict, optional
        Of the evolutionary search, by Ansor's names; those that MetaSchedule has none for have no
        effect.
    seed : int, optional
    init_search_callbacks : sequence of PreloadMeasuredStates or PreloadCustomSketchRule, optional
    """

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: CostModel | None = None,
        params: dict[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(task)
        self.model = program_cost_model or XGBModel()
        self.seed = seed
        self.params = dict(params or {})
        self.verbose = verbose
        log = self.model.log_file if isinstance(self.model, XGBModel) else None
        callbacks = init_search_callbacks or ()
        preloaded = [c.filename for c in callbacks if isinstance(c, PreloadMeasuredStates)]
        self.log_file = next(iter([*preloaded, *([log] if log else [])]), None)
        self._random = random.Random(seed)
        self._tried: set[str] = set()

    def search(self, options: TuningOptions) -> None:
        """Search by a `TaskScheduler` of this task alone."""
        from ... import auto_scheduler  # whose scheduler makes policies

        scheduler = auto_scheduler.TaskScheduler(
            [self.search_task], load_log_file=self.log_file, callbacks=[PrintTableInfo()]
        )
        parameters = {**self.params, "seed": self.seed}
        scheduler.tune(options, [self], parameters)

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """Sketches of the task from MetaSchedule's rules, each with the first sampled tiles."""
        from .states import sketches

        found = sketches(self.search_task)
        if print_for_debug:
            for number, state in enumerate(found):
                print(f"sketch {number}:\n{state}")
        return found

    def sample_initial_population(self) -> list[State]:
        """Random valid schedules of the task, as many as `sample_init_min_population` says.

        Each call draws others.
        """
        from .engine import samples
        from .states import state_of

        count = int(self.params.get("sample_init_min_population", _POPULATION))
        found = samples(self.search_task, count, self._random.randrange(1, _SEEDS))
        return [state_of(self.search_task, schedule) for schedule in found]

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Measure the random schedules that the cost model likes best, and have it learn."""
        task = self.search_task
        states = [each for each in self.sample_initial_population() if str(each) not in self._tried]
        scores = self.model.predict(task, states) if states else []
        ranked = sorted(range(len(states)), key=lambda i: -scores[i])[:num_measure]
        self._tried.update(str(states[i]) for i in ranked)
        inputs = [MeasureInput(task, states[i]) for i in ranked]
        results = measurer.measure(inputs, self)
        if inputs:
            self.model.update(inputs, results)
        return inputs, results
