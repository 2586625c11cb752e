"""`baton tune --tuner auto_scheduler`: search schedules for a model's kernels."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compile import BuildOptions, build_module, import_model
from .console import Steps, interrupt_hint, show, table
from .files import write_text
from .tune import TuneOptions, constant_bytes
from .tuned_network import Gain, prune, show_network

if TYPE_CHECKING:
    from compiler.auto_scheduler.search.confirm import Comparison
    from compiler.auto_scheduler.search.scheduler import TaskScheduler
    from compiler.auto_scheduler.task import SearchTask
    from compiler.records.auto_scheduler.record import Record

# Trials of a task before the search learns from them.
_PER_ROUND = 32


@dataclass(frozen=True)
class Searched(Gain):
    """Result of the search: for each task the untuned kernel and the best, timed in turn."""

    # For each task the untuned kernel and the best records, timed in turn
    comparisons: list[Comparison]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""

        def plain(seconds: float) -> float | None:
            return seconds if math.isfinite(seconds) else None

        tasks = [
            {
                "description": comparison.task.desc,
                "calls": comparison.task.weight,
                "fastest": comparison.kind,
                "untuned_seconds": plain(comparison.untuned_seconds),
                "seconds": plain(comparison.best_seconds),
            }
            for comparison in self.comparisons
        ]
        return {"tasks": tasks, **super().to_json(), "records": len(self.kept)}


def search_model(
    model: Path,
    build: BuildOptions,
    options: TuneOptions,
    scheduler: str | None = None,
    steps: Steps | None = None,
) -> Searched:
    """Search schedules for a model's kernels, and keep those that make the network faster.

    A run that was interrupted is continued by the same call.

    `options`: `trials` counts for each task; records are appended to `log`, and what it holds is
    not measured again. `scheduler`: address of a Dask scheduler whose workers build and measure.
    """
    from compiler import auto_scheduler
    from compiler.auto_scheduler.search.confirm import run_comparison

    steps = steps or Steps()
    mod, params = import_model(model, build, steps)
    with steps.step("extract tasks"):
        tasks, weights = auto_scheduler.extract_tasks(mod, params, build.target, build.target_host)
        heaviest = sorted(range(len(tasks)), key=lambda i: -_work(tasks[i], weights[i]))
        chosen = sorted(heaviest[: options.limit])
        tasks, weights = [tasks[i] for i in chosen], [weights[i] for i in chosen]
    builder, runner = _measuring(options, scheduler, constant_bytes(mod, params))
    tuner = auto_scheduler.TaskScheduler(
        tasks, weights, load_log_file=options.log, callbacks=[_Progress(steps)]
    )
    trials = options.trials * len(tasks) - sum(tuner.task_cts)
    if trials >= len(tasks):
        with (
            steps.step("search", f"{len(tasks)} tasks, {options.trials} trials each"),
            interrupt_hint(options.how_to_continue),
        ):
            tuner.tune(
                auto_scheduler.TuningOptions(
                    num_measure_trials=trials,
                    early_stopping=options.early_stopping,
                    num_measures_per_round=min(options.trials, _PER_ROUND),
                    verbose=0,
                    builder=builder,
                    runner=runner,
                    measure_callbacks=[auto_scheduler.RecordToFile(options.log)],
                    max_seconds=options.seconds,
                )
            )
    records = _records(tasks, options.log)
    with steps.step("compare with the untuned kernels", f"{options.rounds} rounds"):
        comparisons = [
            run_comparison(task, found, builder, runner, options.rounds)
            for task, found in zip(tasks, records)
        ]
    for part in (builder, runner):
        part.close()
    lines = [
        comparison.winner.to_line() for comparison in comparisons if comparison.winner is not None
    ]
    if scheduler is not None or options.tracker is not None:
        _write_best(options.best, comparisons, lines)
        return Searched(lines, 0, [], [], comparisons)

    def library(kept: Sequence[str]) -> Any:
        _write_best(options.best, comparisons, kept)
        logs = (*build.auto_scheduler_logs, str(options.best))
        own = replace(build, auto_scheduler_logs=logs if kept else build.auto_scheduler_logs)
        return build_module(mod, params, own, Steps(quiet=True))

    with steps.step("measure the network"):
        kept, times, base = prune(library, lines, options.rounds, steps)
    return Searched(kept, len(lines) - len(kept), times, base, comparisons)


class _Progress:
    """Says after each round of a task what was found."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def pre_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """Nothing."""

    def post_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        best, task = scheduler.best_costs[task_id], scheduler.tasks[task_id]
        seconds = time.time() - scheduler.start_time
        self._steps.note(
            f"{task.desc[:60]}: best {best * 1e6:.1f} us in {scheduler.task_cts[task_id]} "
            f"trials; {sum(scheduler.task_cts)} trials in all, {seconds:.0f} s"
        )


def _records(tasks: Sequence[SearchTask], log: Path) -> list[list[Record]]:
    """Records of each task in the log."""
    from compiler.records.auto_scheduler.record import Record, scan

    of_key: dict[str, list[Record]] = {task.workload_key: [] for task in tasks}
    for record in scan(log) if log.exists() else ():
        if isinstance(record, Record) and record.workload_key in of_key:
            of_key[record.workload_key].append(record)
    return [of_key[task.workload_key] for task in tasks]


def _work(task: SearchTask, weight: int) -> float:
    """Operations of all its calls; a task of which they are unknown may be the heaviest."""
    return math.inf if task.flop_ct is None else task.flop_ct * weight


def _write_best(path: Path, comparisons: Sequence[Comparison], kept: Sequence[str]) -> None:
    """The records that pay; the other kernels' untuned times, which say to leave them alone."""
    lines = list(kept)
    for comparison in comparisons:
        winner = comparison.winner
        if comparison.untuned is not None and (winner is None or winner.to_line() not in kept):
            lines.append(comparison.untuned.to_line())
    write_text(path, "".join(line + "\n" for line in lines))


def _measuring(options: TuneOptions, scheduler: str | None, constants: int) -> tuple[Any, Any]:
    from compiler import auto_scheduler

    here = {**options.timing, "constant_bytes": constants}
    if scheduler is not None:
        from compiler.measure.distributed import connect

        return connect(scheduler, auto_scheduler.LocalBuilder(options.timeout), here)
    if options.tracker is not None:
        host, port, key = options.tracker
        return auto_scheduler.LocalBuilder(options.timeout), auto_scheduler.RPCRunner(
            key, host, port, **options.timing
        )
    return auto_scheduler.LocalBuilder(options.timeout), auto_scheduler.LocalRunner(**here)


def show_searched(searched: Searched, options: TuneOptions) -> None:
    """Print a line for each task, then the network's latencies."""

    def shown(seconds: float) -> str:
        return f"{seconds * 1e6:.1f}" if math.isfinite(seconds) else "-"

    rows = []
    for comparison in searched.comparisons:
        best = comparison.best_seconds
        gain = comparison.untuned_seconds / best
        rows.append(
            (
                comparison.task.desc,
                str(comparison.task.weight),
                comparison.kind,
                shown(comparison.untuned_seconds),
                shown(best),
                comparison.task.gflops(best),
                f"{gain:.2f}x" if math.isfinite(gain) else "-",
            )
        )
    header = ("kernel", "calls", "fastest", "untuned us", "best us", "GFLOP/s", "gain")
    show(table(header, rows, numbers=4))
    show_network(searched, options.best, "the untuned kernels")
