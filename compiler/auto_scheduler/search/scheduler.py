"""`TaskScheduler`: many tasks share one budget of trials."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RecordError
from ...measure.runner import LocalRunner
from ...records.auto_scheduler.record import PathLike, Record, scan
from ...support.tempdir import TemporaryFolder
from ..require_extras import check_installed
from .callbacks import LogEstimatedLatency, PrintTableInfo, TaskSchedulerCallback
from .cost_model import CostModel, RandomModel, XGBModel
from .options import TuningOptions
from .policy import SketchPolicy

logger = logging.getLogger("baton.auto_scheduler")

if TYPE_CHECKING:
    from ..task import SearchTask

_COST_MODELS: dict[str, type[CostModel]] = {
    "default": XGBModel,
    "sketch.xgb": XGBModel,
    "sketch.random": RandomModel,
}
# A task's rules get no more trials when their best is this many times slower than another one.
_HOPELESS = 3.0
_STRATEGIES = ("gradient", "round-robin")


class TaskScheduler:
    """Divides trials among tasks so that their weighted sum of times falls fastest.

    Half of the trials of a task that was extracted from a model go to the templates of the
    schedule library, where it has any for the task's operators.

    Parameters
    ----------
    tasks : sequence of SearchTask
    task_weights : sequence of int, optional
        How often each is called; 1 by default.
    objective_func : None
        Only the weighted sum of the tasks' times can be minimized.
    strategy : str
        "gradient" or "round-robin".
    load_log_file : path, optional
        A log to go on from: what it has is not measured again.
    load_model_file : None
        The cost model learns from `load_log_file` instead.
    alpha, backward_window_size
        Of the gradient strategy, as Ansor has them.
    beta, gamma
        Accepted; MetaSchedule's gradient strategy does not look at similar tasks.
    callbacks : sequence of TaskSchedulerCallback, optional
        By default a table after each round, and "total_latency.tsv".

    Attributes
    ----------
    best_costs : list of float
        Seconds of each task's best schedule; infinity before one worked.
    task_cts : list of int
        Trials of each task, those in the log included.

    Raises
    ------
    RecordError
        An argument that can't be, or a log that can't be read.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Any = None,
        strategy: str = "gradient",
        load_model_file: PathLike | None = None,
        load_log_file: PathLike | None = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        if not tasks:
            raise RecordError("there are no tasks to tune")
        weights = [1.0] * len(tasks) if task_weights is None else list(task_weights)
        if len(weights) != len(tasks):
            raise RecordError(f"{len(tasks)} tasks have {len(weights)} weights")
        if strategy not in _STRATEGIES:
            raise RecordError(f"strategy {strategy!r} is none of {', '.join(_STRATEGIES)}")
        if objective_func is not None or load_model_file is not None:
            raise RecordError(
                "objective_func and load_model_file are not supported: the search minimizes the "
                "weighted sum of the tasks' times, and its model learns from load_log_file"
            )
        self.tasks = list(tasks)
        self.task_weights = weights
        self.strategy = strategy
        self.alpha = alpha
        self.backward_window_size = backward_window_size
        self.callbacks = (
            [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")]
            if callbacks is None
            else list(callbacks)
        )
        self.best_costs = [math.inf] * len(tasks)
        self.best_ct = 0
        self.ct = 0
        self.task_cts = [0] * len(tasks)
        self.task_best_cts = [0] * len(tasks)
        self.start_time = time.time()
        self._known: list[list[Record]] = [[] for _ in tasks]
        if load_log_file is not None and Path(load_log_file).exists():
            self._restore(load_log_file)

    @property
    def cur_score(self) -> float:
        """Seconds of all tasks together, each at its best; infinity until each has one."""
        return sum(cost * w for cost, w in zip(self.best_costs, self.task_weights, strict=True))

    def _restore(self, log: PathLike) -> None:
        for record in scan(log):
            if not isinstance(record, Record):
                continue
            for index, task in enumerate(self.tasks):
                same_kind = record.target.get("kind") == str(task.target.kind.name)
                if record.workload_key == task.workload_key and same_kind:
                    self._known[index].append(record)
                    self.best_costs[index] = min(self.best_costs[index], record.cost)
                    self.task_cts[index] += not record.untuned

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: str | Sequence[SketchPolicy] = "default",
        search_policy_params: dict[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Search until the trials are used up; results go to the options' callbacks.

        Parameters
        ----------
        search_policy : str, or a SketchPolicy for each task
            "default" or "sketch.xgb": XGBoost guesses which candidates are fast;
            "sketch.random": none does.
        search_policy_params : dict, optional
            "seed", and the parameters of Ansor's evolutionary search, as "eps_greedy".
        adaptive_training : bool
            Accepted; the model is trained anew after every round.
        per_task_early_stopping : int, optional
            Give a task up after this many of its trials without an improvement.

        Raises
        ------
        RecordError
            An unknown policy, too few trials, or a package that tuning needs is not installed.
        """
        parameters = search_policy_params or {}
        self._policies = _policies(search_policy, parameters, self.tasks)
        model = _shared_model(self._policies)
        cost_model = model.kind
        check_installed(
            "cloudpickle", "psutil", *(["xgboost"] if cost_model == XGBModel.kind else [])
        )
        trials = tune_option.num_measure_trials
        per_round = min(tune_option.num_measures_per_round, trials // len(self.tasks))
        if per_round < 1:
            raise RecordError(
                f"num_measure_trials is too small: {trials} trials for {len(self.tasks)} tasks; "
                f"give at least {len(self.tasks)}"
            )
        if tune_option.verbose < 1:
            self.callbacks = [c for c in self.callbacks if not isinstance(c, PrintTableInfo)]
        self.round_size, self.start_time = per_round, time.time()
        self._options, self._patience = tune_option, per_task_early_stopping
        self._checker = LocalRunner(number=1, repeat=1, check_correctness=True)
        tune_option.runner.ref_input = self._inputs()
        try:
            self._measure_untuned()
            self._open_templates(cost_model, parameters.get("seed"))
            self._search(model.searched_with(self.tasks), parameters)
            self._spend_the_rest()
        finally:
            self._checker.close()
            tune_option.close()

    def _inputs(self) -> list[np.ndarray] | None:
        """Values of all operands of a task that has user-given values for some."""
        task = next((task for task in self.tasks if task.inputs), None)
        if task is None:
            return None
        if len(self.tasks) > 1:
            raise RecordError(f"{task} has task_inputs; tune it alone with its `tune` method")
        return task.operand_values

    def _measure_untuned(self) -> None:
        """Log what each task has to beat, unless the log says so already."""
        from .confirm import measure_untuned

        for index, task in enumerate(self.tasks):
            if any(record.untuned for record in self._known[index]):
                continue
            record = measure_untuned(task, self._options.builder, self._options.runner)
            if record is not None:
                self._note(index, [record])

    def _open_templates(self, cost_model: str, seed: int | None) -> None:
        """Decide how many trials go to the templates of the schedule library."""
        from .templates import TemplateSearch

        algorithm = "xgb_knob" if cost_model == XGBModel.kind else "random"
        self._templates = [
            TemplateSearch(task, known, algorithm, seed)
            for task, known in zip(self.tasks, self._known, strict=True)
        ]
        with_templates = sum(search.has_next for search in self._templates)
        share = with_templates * (self.round_size // 2) / (len(self.tasks) * self.round_size)
        self._template_trials = int(self._options.num_measure_trials * share)
        self._template_round = self.round_size // 2 if with_templates else 0

    def _search(self, cost_model: Any, parameters: Mapping[str, Any]) -> None:
        from tvm.s_tir import meta_schedule as ms

        from . import engine

        self._begun: set[int] = set()
        known, database = engine.Known(), ms.database.MemoryDatabase()
        seed = parameters.get("seed")
        for index, task in enumerate(self.tasks):
            engine.preload(database, task, self._known[index], known)
        self._rule_trials = self._options.num_measure_trials - self._template_trials
        observer = engine.Observer(self.tasks, self._after_round)
        strategy = (
            ms.task_scheduler.GradientBased(
                alpha=self.alpha,
                window_size=self.backward_window_size,
                seed=engine.random_state(seed),
            )
            if self.strategy == "gradient"
            else ms.task_scheduler.RoundRobin()
        )
        self._builder = builder = engine.Builder(
            self._options.builder, known, lambda: self._goes_on(strategy)
        )
        of_rules = self.round_size - self._template_round
        for callback in self.callbacks:
            callback.pre_tune(self, 0)
        with TemporaryFolder("search") as work_dir, _quiet():
            ms.tune_tasks(
                tasks=[engine.context(task, parameters, seed, of_rules) for task in self.tasks],
                task_weights=self.task_weights,
                work_dir=work_dir,
                max_trials_global=self._rule_trials,
                num_trials_per_iter=of_rules,
                builder=builder,
                runner=engine.Runner(self._options.runner, builder, known),
                database=database,
                cost_model=cost_model,
                measure_callbacks=[
                    ms.measure_callback.AddToDatabase(),
                    ms.measure_callback.UpdateCostModel(),
                    observer,
                ],
                task_scheduler=strategy,
            )
        for index, error in observer.first_errors.items():
            tuned = [record for record in self._known[index] if not record.untuned]
            if all(record.error for record in tuned):
                logger.warning(
                    "%s: all %d trials failed, the first with %s",
                    *(self.tasks[index], self.task_cts[index], error),
                )

    def _goes_on(self, scheduler: Any) -> bool:
        """Log what was measured, and end all tasks once the search is over.

        MetaSchedule begins every task once and must not find it ended then, nor one that it chose
        among others: this is called when it has chosen.
        """
        from . import engine

        engine.hand_on_results(scheduler)
        if not self._is_over:
            return True
        for index in self._begun:
            record = scheduler.tasks_[index]
            if record.measure_candidates is None and not record.is_terminated:
                scheduler.terminate_task(index)
        return False

    def _after_round(self, task_id: int, records: list[Record], scheduler: Any) -> None:
        self._begun.add(task_id)
        self._count(task_id, records)
        if not self._is_over:
            self._try_templates(task_id)
        for callback in self.callbacks:
            callback.post_tune(self, task_id)
        since = self.task_cts[task_id] - self.task_best_cts[task_id]
        is_stuck = self._patience is not None and since >= self._patience
        ends = self._is_over or is_stuck or self._rules_are_hopeless(task_id)
        # MetaSchedule ends a task itself after its last round, and refuses to do so twice.
        if ends and not self._is_last_round and not scheduler.tasks_[task_id].is_terminated:
            scheduler.terminate_task(task_id)

    def _count(self, task_id: int, records: list[Record]) -> None:
        self.ct += len(records)
        self.task_cts[task_id] += len(records)
        self._note(task_id, records)

    def _try_templates(self, task_id: int) -> int:
        """Measure configs of a task's templates; how many."""
        count = min(self._template_round, self._template_trials)
        search = self._templates[task_id]
        if not count or not search.has_next:
            return 0
        options = self._options
        records = search.round(count, options.builder, options.runner, self._checker)
        self._template_trials -= len(records)
        self._count(task_id, records)
        return len(records)

    @property
    def _is_last_round(self) -> bool:
        """Whether MetaSchedule has handed out all its trials."""
        return self._builder.received >= self._rule_trials

    def _rules_are_hopeless(self, task_id: int) -> bool:
        """Whether MetaSchedule's rules are too slow against the templates to deserve trials."""
        if not self._templates[task_id].has_next:
            return False
        costs = (record.cost for record in self._known[task_id] if record.has_trace)
        return min(costs, default=math.inf) > _HOPELESS * self.best_costs[task_id]

    def _spend_the_rest(self) -> None:
        """Give the trials that the search left to templates of the tasks that take longest."""
        self._template_trials = max(self._options.num_measure_trials - self.ct, 0)
        left = list(range(len(self.tasks)))
        while left and self._template_trials and not self._is_over:
            longest = max(left, key=lambda i: self.best_costs[i] * self.task_weights[i])
            if not self._try_templates(longest):
                left.remove(longest)
            for callback in self.callbacks:
                callback.post_tune(self, longest)

    @property
    def _is_over(self) -> bool:
        """Whether time is up, or too many trials in a row found nothing better."""
        limit = self._options.max_seconds
        if limit is not None and time.time() - self.start_time >= limit:
            return True
        patience = self._options.early_stopping
        stalled = patience is not None and self.ct - self.best_ct >= patience
        return stalled and math.isfinite(self.cur_score)

    def _note(self, task_id: int, records: list[Record]) -> None:
        """Log records, the first of a task with its unscheduled function, and keep the best."""
        if records and not self._known[task_id]:
            from ...records.auto_scheduler.workload import canonical

            records[0] = records[0].with_tir(canonical(self.tasks[task_id].func))
        self._known[task_id] += records
        best = min((record.cost for record in records), default=math.inf)
        if best < self.best_costs[task_id]:
            self.best_costs[task_id] = best
            self.best_ct, self.task_best_cts[task_id] = self.ct, self.task_cts[task_id]
        self._options.report(records, self._policies[task_id])


def _policies(
    policy: str | Sequence[SketchPolicy], parameters: dict[str, Any], tasks: Sequence[SearchTask]
) -> list[SketchPolicy]:
    """One policy for each task."""
    if isinstance(policy, str):
        if policy not in _COST_MODELS:
            raise RecordError(f"search policy {policy!r} is none of {', '.join(_COST_MODELS)}")
        model = _COST_MODELS[policy]()
        return [SketchPolicy(task, model, parameters, parameters.get("seed")) for task in tasks]
    if len(policy) != len(tasks) or not all(isinstance(each, SketchPolicy) for each in policy):
        raise RecordError(f"give one SketchPolicy for each of the {len(tasks)} tasks, or a name")
    return list(policy)


def _shared_model(policies: Sequence[SketchPolicy]) -> CostModel:
    """The model of all tasks; of several of Baton's own kinds, which learn of all, the first."""
    models = [policy.model for policy in policies]
    distinct = {id(each) if each.kind == CostModel.kind else each.kind for each in models}
    if len(distinct) > 1:
        names = sorted({type(each).__name__ for each in models})
        raise RecordError(
            "tasks that are tuned together share one cost model; these have several "
            f"({', '.join(names)}): give them one, or tune each by its `tune`"
        )
    return models[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """MetaSchedule prints its own tables to its logger; this package prints one."""
    of_tvm = logging.getLogger("tvm.s_tir.meta_schedule")
    level = of_tvm.level
    of_tvm.setLevel(logging.WARNING)
    try:
        yield
    finally:
        of_tvm.setLevel(level)
