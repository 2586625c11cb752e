"""`baton tune --tuner auto_scheduler`: search schedules for a model's kernels."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile import BuildOptions, build_module, import_model
from .console import Steps, show, table
from .models import random_inputs
from .replay import time_in_turn
from .tune import TuneOptions

if TYPE_CHECKING:
    from compiler.auto_scheduler.task import SearchTask


@dataclass(frozen=True)
class Searched:
    """What the search found.

    Attributes
    ----------
    tasks : list of SearchTask
    untuned, best : list of float
        Seconds of each task's kernel without records, and of the best schedule; infinity if there
        is none.
    milliseconds, milliseconds_without : list of float
        Of the network, in turn, under the log and without.
    """

    tasks: list[SearchTask]
    untuned: list[float]
    best: list[float]
    milliseconds: list[float]
    milliseconds_without: list[float]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""

        def plain(seconds: float) -> float | None:
            return seconds if math.isfinite(seconds) else None

        return {
            "tasks": [
                {
                    "description": task.desc,
                    "calls": task.weight,
                    "untuned_seconds": plain(untuned),
                    "seconds": plain(best),
                }
                for task, untuned, best in zip(self.tasks, self.untuned, self.best)
            ],
            "milliseconds": self.milliseconds,
            "milliseconds_without": self.milliseconds_without,
        }


def search_model(
    model: Path,
    build: BuildOptions,
    options: TuneOptions,
    scheduler: str | None = None,
    steps: Steps | None = None,
) -> Searched:
    """Search schedules for a model's kernels, and time the network with and without them.

    Parameters
    ----------
    options : TuneOptions
        `trials` counts for each task; records are appended to `log`, and what it holds is not
        measured again.
    scheduler : str, optional
        Address of a Dask scheduler whose workers build and measure.

    Raises
    ------
    BatonError
        Of the step that failed.
    """
    from compiler import auto_scheduler

    steps = steps or Steps()
    mod, params = import_model(model, build, steps)
    with steps.step("extract tasks"):
        tasks, weights = auto_scheduler.extract_tasks(mod, params, build.target, build.target_host)
        heaviest = sorted(range(len(tasks)), key=lambda i: -tasks[i].flop_ct * weights[i])
        chosen = sorted(heaviest[: options.limit])
        tasks, weights = [tasks[i] for i in chosen], [weights[i] for i in chosen]
    builder, runner = _measuring(options, scheduler)
    tuner = auto_scheduler.TaskScheduler(tasks, weights, load_log_file=options.log)
    with steps.step("search", f"{len(tasks)} tasks, {options.trials} trials each"):
        tuner.tune(
            auto_scheduler.TuningOptions(
                num_measure_trials=options.trials * len(tasks),
                early_stopping=options.early_stopping,
                num_measures_per_round=min(options.trials, 64),
                builder=builder,
                runner=runner,
                measure_callbacks=[auto_scheduler.RecordToFile(options.log)],
            )
        )
    untuned = _untuned(tasks, options.log)
    with steps.step("measure the network"):
        without = build_module(mod, params, build, steps)
        log = (*build.auto_scheduler_logs, str(options.log))
        tuned = build_module(mod, params, replace(build, auto_scheduler_logs=log), steps)
        inputs = random_inputs(without.metadata.inputs)
        (times, base), _ = time_in_turn([tuned, without], inputs, options.rounds)
    return Searched(tasks, untuned, list(tuner.best_costs), times, base)


def _measuring(options: TuneOptions, scheduler: str | None) -> tuple[Any, Any]:
    from compiler import auto_scheduler

    timing: dict[str, Any] = {
        "timeout": options.timeout,
        "number": options.number,
        "repeat": options.repeat,
        "min_repeat_ms": options.min_repeat_ms,
        "cooldown_interval": options.cooldown,
    }
    if scheduler is not None:
        from compiler.measure.distributed import connect

        return connect(scheduler, auto_scheduler.LocalBuilder(options.timeout), timing)
    if options.tracker is not None:
        host, port, key = options.tracker
        return auto_scheduler.LocalBuilder(options.timeout), auto_scheduler.RPCRunner(
            key, host, port, **timing
        )
    return auto_scheduler.LocalBuilder(options.timeout), auto_scheduler.LocalRunner(**timing)


def _untuned(tasks: list[SearchTask], log: Path) -> list[float]:
    """Seconds of each task's kernel without records, from the log."""
    from compiler.auto_scheduler import load_records
    from compiler.auto_scheduler.record import Record

    costs: dict[str, float] = {}
    for record in load_records(log):
        if isinstance(record, Record) and record.untuned:
            costs[record.workload_key] = record.cost
    return [costs.get(task.workload_key, math.inf) for task in tasks]


def show_searched(searched: Searched) -> None:
    """Print a line for each task, then the network's latencies."""

    def shown(seconds: float) -> str:
        return f"{seconds * 1e6:.1f}" if math.isfinite(seconds) else "-"

    rows = [
        (task.desc, str(task.weight), shown(untuned), shown(best))
        for task, untuned, best in zip(searched.tasks, searched.untuned, searched.best)
    ]
    show(table(("kernel", "calls", "untuned us", "best us"), rows, numbers=3))
    with_log = statistics.median(searched.milliseconds)
    without = statistics.median(searched.milliseconds_without)
    show(f"the network: {without:.3f} ms without the log, {with_log:.3f} ms with it")
