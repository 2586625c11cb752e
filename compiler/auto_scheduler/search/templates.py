"""Searches the templates of the schedule library for a task's kernel, beside MetaSchedule's rules.

Every implementation that can compute the task's anchor (direct, Winograd, packed product) is an
AutoTVM task with its own tuner. Trials go to the implementations that are near the best.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm

from ...autotvm.measure import measure_batch
from ...autotvm.task import TaskCandidate
from ...autotvm.tuner import make_tuner
from ...autotvm.tuner.base import Tuner, as_measured
from ...errors import BatonError
from ...lowering.selection.default_kernel import LibraryKernel, library_kernels
from ...lowering.selection.extract import alone
from ...measure.candidate import FAILED_COST, ArgInfo, InstantiationError, Lowered, MeasureErrorNo
from ...records.auto_scheduler.record import Record
from ...records.auto_scheduler.template import Template
from ...records.auto_scheduler.workload import ENTRY
from ...records.autotvm.record import LoggedTask, MeasureInput
from ...records.measure_result import MeasureResult
from ...records.untrusted_json import mean_seconds
from .candidate import device_kind, plain_config
from .engine import logged_target

if TYPE_CHECKING:
    from ...autotvm.task import Task
    from ..task import SearchTask

logger = logging.getLogger("baton.auto_scheduler")

# An implementation whose best is this many times slower than another's gets no more trials once it
# had _FAIR_TRIALS.
_HOPELESS = 1.5
_FAIR_TRIALS = 4
_SOURCE = "topi:candidate"


@dataclass(frozen=True)
class TemplateCandidate:
    """A candidate of `compiler.measure`: one kernel's operators under a template's config."""

    text: str  # the module of the operators alone, as `tvm.ir.save_json` writes it
    target: dict[str, Any]  # the target's configuration
    device: str  # kind of device it runs on
    template: Template
    modules: Sequence[str] = (
        "compiler.auto_scheduler.search.templates",
        "compiler.autotvm.operators",
        "compiler.lowering.build",
        "schedules.rules",
    )

    def kernel(self) -> LibraryKernel:
        """The one scheduled kernel; InstantiationError if the config makes none or several."""
        target = tvm.target.Target(self.target)
        query = self.template.query(_SOURCE, math.inf)
        kernels = library_kernels(tvm.ir.load_json(self.text), target, query)
        if len(kernels) != 1:
            raise InstantiationError(f"the operators become {len(kernels)} kernels")
        if kernels[0].source != _SOURCE:
            raise InstantiationError(f"{self.template.task} does not take the config")
        return kernels[0]

    def lower(self) -> Lowered:
        """Choose layouts, fuse and schedule."""
        func = self.kernel().func.with_attr("global_symbol", ENTRY)
        args = tuple(map(ArgInfo.of, func.params))
        return Lowered(tvm.IRModule({ENTRY: func}), tvm.target.Target(self.target), args)

    def reference(self) -> None:
        """None: `TemplateSearch` compares those that come out best."""
        return None


class TemplateSearch:
    """The templates that can compute a task's kernel, and what is known of their configs.

    `task`: extracted from a model; other tasks have no templates, since their operators are
    unknown. `known`: what was measured of the task; its template records are not measured again.
    `algorithm`: of the tuners, as `autotvm.tuner.make_tuner` takes it.
    """

    def __init__(
        self,
        task: SearchTask,
        known: Sequence[Record],
        algorithm: str = "xgb_knob",
        seed: int | None = None,
    ) -> None:
        self.task = task
        self.tuners: list[Tuner] = []
        if task.origin is None:
            return
        mod, function, bindings = task.origin
        operators = alone(mod, function, bindings)
        options = {} if seed is None else {"seed": seed}
        self.tuners = [
            make_tuner(algorithm, each, **options) for each in _tasks(operators, task.target)
        ]
        self._text = str(tvm.ir.save_json(operators)) if self.tuners else ""
        measured = [record for record in known if record.template is not None]
        self.best = min((record.cost for record in measured), default=math.inf)
        history = [_history(task, record) for record in measured]
        for tuner in self.tuners:
            tuner.load_history(history)

    @property
    def has_next(self) -> bool:
        """Whether a config is left that was not measured."""
        return any(tuner.has_next() for tuner in self.tuners)

    def round(self, count: int, builder: Any, runner: Any, checker: Any) -> list[Record]:
        """Measure at most `count` configs and learn; `checker` compares the best with numpy."""
        records: list[Record] = []
        while len(records) < count:
            tuner = self._next_tuner()
            if tuner is None:
                break
            configs = tuner.next_batch(min(_FAIR_TRIALS, count - len(records)))
            if not configs:
                break
            candidates = [self._candidate(tuner.task, config) for config in configs]
            results = measure_batch({"builder": builder, "runner": runner}, candidates)
            inputs = [
                MeasureInput(self.task.target, tuner.task.logged, config, config.index)
                for config in configs
            ]
            for place, result in enumerate(results):
                if (cost := mean_seconds(result.costs, result.error_no)) < self.best:
                    wrong = _wrong(tuner.task, configs[place], builder, checker)
                    if wrong is not None:
                        results[place] = wrong
                    else:
                        self.best = cost
                tuner.note(inputs[place], results[place])
            tuner.update(inputs, results)
            records += map(self._record, candidates, results)
        return records

    def _next_tuner(self) -> Tuner | None:
        """The one with the fewest trials of those that may hold the best config."""
        best = min(map(_best_seconds, self.tuners), default=math.inf)
        hopeful = [
            tuner
            for tuner in self.tuners
            if tuner.has_next()
            and (len(tuner.visited) < _FAIR_TRIALS or _best_seconds(tuner) <= best * _HOPELESS)
        ]
        return min(hopeful, key=lambda tuner: len(tuner.visited), default=None)

    def _candidate(self, task: Task, config: Any) -> TemplateCandidate:
        template = Template(task.name, task.args, config.to_entity())
        target = self.task.target
        return TemplateCandidate(self._text, plain_config(target), device_kind(target), template)

    def _record(self, candidate: TemplateCandidate, result: MeasureResult) -> Record:
        return Record(
            self.task.workload_key,
            logged_target(self.task.target),
            [[], []],
            tuple(result.costs) if result.is_right else (),
            int(result.error_no),
            template=candidate.template,
        )


def _tasks(operators: tvm.IRModule, target: Any) -> list[Task]:
    from ...autotvm.extraction import extract_from_program

    try:
        found = extract_from_program(operators, target=target)
    except BatonError as error:
        logger.warning("no templates: %s", error)
        return []
    return [task for task in found if task.config_space.range_length]


def _wrong(task: Task, config: Any, builder: Any, checker: Any) -> MeasureResult | None:
    """The failed measurement of a config whose anchor alone computes something else than numpy.

    Not being able to run here says nothing: candidates may be meant for another machine.
    """
    (checked,) = measure_batch(
        {"builder": builder, "runner": checker}, [TaskCandidate(task, config)]
    )
    return checked if checked.error_no == MeasureErrorNo.WRONG_ANSWER else None


def _best_seconds(tuner: Tuner) -> float:
    return tuner.task.flop / tuner.best_flops if tuner.best_flops else math.inf


def _history(task: SearchTask, record: Record) -> tuple[MeasureInput, MeasureResult]:
    """A template's record as AutoTVM's tuners take it."""
    assert record.template is not None
    logged = LoggedTask(record.template.task, record.template.args)
    config = record.template.config(record.source, record.cost)
    costs = record.costs or (FAILED_COST,)
    result = MeasureResult(costs, record.error, 0.0, record.timestamp)
    return MeasureInput(task.target, logged, config), as_measured(result)
