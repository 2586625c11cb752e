"""MetaSchedule over the measuring processes of `compiler.measure`.

MetaSchedule makes candidates and learns from their times; this module builds, runs and logs them.
What a log holds already is not measured again: its times are handed to MetaSchedule at once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from schedules.tensor_intrinsics import import_intrinsics

from ...measure.candidate import BuildResult, MeasureErrorNo
from ...records.auto_scheduler.record import Record
from ...records.auto_scheduler.workload import ENTRY, canonical
from ...target import with_attributes
from ...target.config import config_of_object
from .candidate import ScheduledModule

if TYPE_CHECKING:
    from ..task import SearchTask

_KNOWN = "known:"
_LEFT_OUT = "left out"


@dataclass
class Known:
    """Times of scheduled modules that were measured before."""

    # Structural hash of a module to its seconds per run; empty for one that failed
    costs: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def add(self, mod: tvm.IRModule, costs: tuple[float, ...]) -> None:
        self.costs[_hash(mod)] = costs

    def key(self, mod: tvm.IRModule) -> int | None:
        """The module's hash if it was measured before."""
        key = _hash(mod)
        return key if key in self.costs else None


def _hash(mod: tvm.IRModule) -> int:
    return int(tvm_ffi.structural_hash(mod[ENTRY]))


@derived_object
class Builder(ms.builder.PyBuilder):
    """Builds the candidates `received` from MetaSchedule, by a builder of `compiler.measure`.

    `goes_on`: called before each round; if it says no, the round is left out.
    """

    def __init__(self, builder: Any, known: Known, goes_on: Callable[[], bool]) -> None:
        super().__init__()
        self.builder = builder
        self.known = known
        self.goes_on = goes_on
        self.built: dict[str, tuple[ScheduledModule, BuildResult]] = {}
        self.received = 0

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        self.received += len(build_inputs)
        if not self.goes_on():
            return [ms.builder.BuilderResult(None, _LEFT_OUT) for _ in build_inputs]
        keys = [self.known.key(each.mod) for each in build_inputs]
        new = [
            ScheduledModule.of(each.mod, each.target)
            for each, key in zip(build_inputs, keys, strict=True)
            if key is None
        ]
        results = iter(zip(new, self.builder.build(new), strict=True))
        return [
            self._outcome(*next(results))
            if key is None
            else ms.builder.BuilderResult(f"{_KNOWN}{key}", None)
            for key in keys
        ]

    def _outcome(self, candidate: ScheduledModule, built: BuildResult) -> Any:
        if built.error_no:
            return ms.builder.BuilderResult(None, _error(built.error_no, built.message))
        self.built[built.path] = candidate, built
        return ms.builder.BuilderResult(built.path, None)


def hand_on_results(scheduler: Any) -> None:
    """Have a MetaSchedule scheduler call its callbacks before a killed run loses the results."""
    for index, record in enumerate(scheduler.tasks_):
        if record.runner_futures is not None:
            scheduler.join_running_task(index)


@derived_object
class Runner(ms.runner.PyRunner):
    """Runs what `Builder` built with a runner of `compiler.measure`."""

    def __init__(self, runner: Any, builder: Any, known: Known) -> None:
        super().__init__()
        self.runner = runner
        self.built = builder.built
        self.known = known

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        paths = [str(each.artifact_path) for each in runner_inputs]
        new = [self.built.pop(path) for path in paths if not path.startswith(_KNOWN)]
        results = iter(self.runner.run([each[0] for each in new], [each[1] for each in new]))
        futures = []
        for path in paths:
            if path.startswith(_KNOWN):
                costs = self.known.costs[int(path.removeprefix(_KNOWN))]
                message = None if costs else _error(MeasureErrorNo.UNKNOWN_ERROR, "failed before")
                outcome = ms.runner.RunnerResult(list(costs) or None, message)
            else:
                measured = next(results)
                os.unlink(path)
                if measured.is_right:
                    outcome = ms.runner.RunnerResult(list(measured.costs), None)
                else:
                    text = _error(measured.error_no, measured.error_msg)
                    outcome = ms.runner.RunnerResult(None, text)
            futures.append(_Done(outcome))
        return futures


@derived_object
class _Done(ms.runner.PyRunnerFuture):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result


def _error(number: MeasureErrorNo, message: str) -> str:
    return f"{int(number)}: {message}"


def error_number(message: str | None) -> int:
    """The `MeasureErrorNo` of a message of `Builder` or `Runner`; 0 for None."""
    return 0 if message is None else int(message.split(":", 1)[0])


@derived_object
class Observer(ms.measure_callback.PyMeasureCallback):
    """Turns each round of measurements into records and hands them on.

    `after_round`: gets the task's index and the records of the round, those measured before left
    out, and MetaSchedule's scheduler.
    """

    def __init__(
        self, tasks: Sequence[SearchTask], after_round: Callable[[int, list[Record], Any], None]
    ) -> None:
        super().__init__()
        self.tasks = tasks
        self.after_round = after_round
        self.first_errors: dict[int, str] = {}  # by task

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        records = []
        for candidate, built, run in zip(
            measure_candidates, builder_results, runner_results, strict=True
        ):
            known = built.artifact_path is not None and str(built.artifact_path).startswith(_KNOWN)
            if known or built.error_msg == _LEFT_OUT:
                continue
            message = built.error_msg if built.error_msg is not None else run.error_msg
            costs = tuple(float(seconds) for seconds in run.run_secs or ())
            trace = trace_of(candidate.sch)
            task = self.tasks[task_id]
            error = error_number(message)
            if error:
                kind = MeasureErrorNo(error).name
                text = f"{kind}: {message.partition(':')[2].strip()}"
                self.first_errors.setdefault(task_id, text)
            records.append(
                Record(task.workload_key, logged_target(task.target), trace, costs, error)
            )
        self.after_round(task_id, records, task_scheduler)


def logged_target(target: Target) -> dict[str, Any]:
    """The target as records state it: tuned kernels run on the device alone."""
    config = config_of_object(target)
    config.pop("host", None)
    return config


def trace_of(schedule: Schedule) -> list[Any]:
    """The trace of a schedule as a record holds it."""
    return json.loads(json.dumps(schedule.trace.as_json(), default=lambda number: number.value))


def preload(
    database: Any, task: SearchTask, records: Sequence[Record], known: Known
) -> list[Record]:
    """Give MetaSchedule the records of a task whose traces apply, and return these."""
    target = with_num_cores(task.target)
    plain = tvm.IRModule({ENTRY: canonical(task.func)})
    workload = database.commit_workload(plain)
    taken = []
    for record in records:
        if not record.has_trace:
            continue
        try:
            schedule = record.schedule_of(plain, target)
        except Exception:  # a trace of another TVM, or an edited one, fails in many ways
            continue
        taken.append(record)
        failed = record.cost == math.inf
        known.add(schedule.mod, () if failed else record.costs)
        if not failed:
            args = ms.arg_info.ArgInfo.from_entry_func(plain)
            database.commit_tuning_record(
                ms.database.TuningRecord(schedule.trace, workload, list(record.costs), target, args)
            )
    return taken


def with_num_cores(target: Target) -> Target:
    """MetaSchedule sizes parallel loops by `num-cores`, which a CPU target need not have."""
    if target.kind.name != "llvm" or "num-cores" in target.attrs:
        return target
    return with_attributes(target, {"num-cores": len(os.sched_getaffinity(0))})


def random_state(seed: int | None) -> int:
    """A seed as MetaSchedule takes it; -1 for a different one each time."""
    return -1 if seed is None else seed


# Ansor's parameters of the evolutionary search, and MetaSchedule's.
_PARAMETERS = {
    "eps_greedy": "eps_greedy",
    "evolutionary_search_mutation_prob": "genetic_mutate_prob",
    "evolutionary_search_num_iters": "genetic_num_iters",
    "evolutionary_search_population": "population_size",
    "sample_init_min_population": "init_min_unmeasured",
    "sample_init_use_measured_ratio": "init_measured_ratio",
}


# Candidates that the evolution looks at for each one that is measured, and that it starts from:
# MetaSchedule takes 5 ms for each, its own defaults half a minute for a round of any size.
_PER_MEASURED, _SAMPLED_PER_MEASURED, _ITERATIONS = 4, 2, 3
_MOST_POPULATION, _MOST_SAMPLED = 512, 50


def context(
    task: SearchTask, parameters: Mapping[str, Any], seed: int | None, per_round: int
) -> Any:
    """MetaSchedule's view of a task.

    `parameters`: of a search policy, by Ansor's names; those that MetaSchedule has none for are
    left out. `per_round`: candidates that are measured before the cost model learns from them.
    """
    given = {
        "population_size": min(_PER_MEASURED * per_round, _MOST_POPULATION),
        "init_min_unmeasured": min(_SAMPLED_PER_MEASURED * per_round, _MOST_SAMPLED),
        "genetic_num_iters": _ITERATIONS,
    }
    given |= {_PARAMETERS[name]: parameters[name] for name in _PARAMETERS if name in parameters}
    return tuning_context(task, ms.search_strategy.EvolutionarySearch(**given), seed)


def samples(task: SearchTask, count: int, seed: int) -> list[Schedule]:
    """Sample at most `count` random valid schedules of a task; the result may be empty."""
    sampling = tuning_context(task, ms.search_strategy.ReplayTrace(), seed)
    sampling.pre_tuning(max_trials=count, num_trials_per_iter=count)
    try:
        return [each.sch for each in sampling.generate_measure_candidates() or ()]
    finally:
        sampling.post_tuning()


def tuning_context(task: SearchTask, strategy: Any, seed: int | None) -> Any:
    """MetaSchedule's view of a task, searched by a strategy."""
    import_intrinsics(task.target)
    return ms.TuneContext(
        mod=canonical(task.func),
        target=with_num_cores(task.target),
        space_generator=_space(task),
        search_strategy=strategy,
        task_name=task.desc,
        rand_state=random_state(seed),
        num_threads=len(os.sched_getaffinity(0)),
    ).clone()


def _space(task: SearchTask) -> Any:
    """Where schedules come from. Loops whose extent is read from memory are no reason to refuse
    them all where the computation itself has such loops."""
    found = False

    def look(loop: tirx.For) -> None:
        nonlocal found
        found = found or not isinstance(loop.extent, tirx.IntImm)

    tvm_ffi.structural_walk(task.func.body, (tirx.For, look))
    if not found:
        return "post-order-apply"
    made = ms.postproc.Postproc.create(str(task.target.kind.name))
    return ms.space_generator.PostOrderApply(
        postprocs=[p for p in made if not isinstance(p, ms.postproc.DisallowDynamicLoop)]
    )
