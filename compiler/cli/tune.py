"""`baton tune`: measure configs of a model's kernels, keep those that pay, show what they gain."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.rewrite import expressions_in
from .compile import BuildOptions, build_module, import_model
from .console import Steps, show, table
from .files import write_text
from .tuned_network import Silent, prune, show_network
from .tuning_progress import Progress, Trials, write_picture

if TYPE_CHECKING:
    import tvm

    from compiler.autotvm.confirm import Comparison
    from compiler.autotvm.task import Task


@dataclass(frozen=True)
class TuneOptions:
    """How a model is tuned."""

    log: Path  # every measurement; appended to. What it holds is not measured again.
    best: Path  # the records that beat the fallback; overwritten
    picture: Path | None = None  # best so far against trials, SVG
    trials: int = 64  # measurements of each task, those in the log included
    algorithm: str = "xgb_knob"  # as `autotvm.tuner.make_tuner` takes it
    operators: tuple[str, ...] = ()  # such as "nn.conv2d"; all if empty
    early_stopping: int | None = None
    timeout: float = 20.0  # seconds for a build, and for all runs, of one candidate
    number: int = 4  # see `measure.RunOptions`
    repeat: int = 3
    min_repeat_ms: int = 10
    cooldown: float = 0.0  # seconds of rest after each candidate
    check: bool = True  # compare each candidate's result with numpy's
    # Measure on devices of this RPC tracker, instead of here
    tracker: tuple[str, int, str] | None = None
    rounds: int = 7  # of the comparisons at the end
    limit: int | None = None  # tune only the tasks with the most work
    # Measure no more than so long, each task for its share; the comparisons come on top
    seconds: float | None = None


@dataclass(frozen=True)
class Tuned:
    """Result of tuning."""

    # For each operator and shape, the fallback and the finalists with their times
    comparisons: list[Comparison]
    kept: list[str]  # sources, "topi:<log>:<line>", of the records in the log of the best
    dropped: int  # records that beat the fallback alone and slowed the network
    # Of the network, in turn, under the log of the best and without; empty on a tracker's devices
    milliseconds: list[float]
    milliseconds_without: list[float]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "operators": [
                {
                    "task": comparison.tasks[0].name,
                    "args": comparison.tasks[0].args,
                    "calls": comparison.tasks[0].weight,
                    "fallback_seconds": comparison.fallback_seconds,
                    "seconds": comparison.winner[1] if comparison.winner else None,
                    "winner": comparison.winner[0].task.name if comparison.winner else None,
                }
                for comparison in self.comparisons
            ],
            "records": self.kept,
            "dropped": self.dropped,
            "milliseconds": self.milliseconds,
            "milliseconds_without": self.milliseconds_without,
        }


def tune_model(
    model: Path, build: BuildOptions, options: TuneOptions, steps: Steps | None = None
) -> Tuned:
    """Tune a model's kernels and write the log of the best.

    A run that was interrupted is continued by the same call.

    Raises BatonError: of the step that failed.
    """
    from compiler.autotvm import confirm, load_from_file, task

    steps = steps or Steps()
    mod, params = import_model(model, build, steps)
    with steps.step("extract tasks"):
        tasks = task.extract_from_program(
            mod, params, build.target, build.target_host, options.operators or None
        )
        tasks = _heaviest(tasks, options.limit)
    option = _measure_option(options, constant_bytes(mod, params))
    with steps.step("tune", f"{len(tasks)} tasks, {options.trials} trials each"):
        trials = measure_tasks(tasks, option, options)
    with steps.step("compare with the fallback", f"{options.rounds} rounds"):
        records = list(load_from_file(options.log)) if options.log.exists() else []
        found = confirm.comparisons(tasks, records)
        confirm.run_comparisons(found, option, options.rounds)
    _close(option)
    if options.picture is not None:
        _note_fallbacks(trials, found)
        write_picture(trials, f"{model.name}: best so far", options.picture)
    lines = [line for comparison in found if (line := _line(comparison)) is not None]
    if options.tracker is not None:
        _write_best(options.best, lines)
        return Tuned(found, _sources(options.best, lines), 0, [], [])
    with steps.step("measure the network"):

        def library(kept: Sequence[str]) -> Any:
            _write_best(options.best, kept)
            logs = (*build.logs, str(options.best)) if kept else build.logs
            return build_module(mod, params, replace(build, logs=logs), Silent())

        kept, times, without = prune(library, lines, options.rounds, steps)
    return Tuned(found, _sources(options.best, kept), len(lines) - len(kept), times, without)


def measure_tasks(
    tasks: Sequence[Task], option: dict[str, Any], options: TuneOptions
) -> list[Trials]:
    """Run a tuner on each task; configs that the log has are not measured again."""
    from compiler.autotvm import callback, load_from_file
    from compiler.autotvm.tuner import make_tuner

    records = list(load_from_file(options.log)) if options.log.exists() else []
    planned = [min(options.trials, len(task.config_space)) for task in tasks]
    end = math.inf if options.seconds is None else time.monotonic() + options.seconds
    with Progress(sum(planned)) as progress:
        for position, (task, most) in enumerate(zip(tasks, planned)):
            tuner = make_tuner(options.algorithm, task)
            tuner.load_history(records)
            known = len(tuner.visited)
            best = tuner.best_flops / 1e9
            progress.start(_title(task), [best] if best else [], min(known, most))
            before = len(progress.trials[-1].gflops)
            now = time.monotonic()
            if known < most and now < end:
                deadline = _Deadline(now + (end - now) / (len(tasks) - position))
                with contextlib.suppress(_TimeIsUp):
                    tuner.tune(
                        most - known,
                        option,
                        early_stopping=options.early_stopping,
                        callbacks=[callback.log_to_file(options.log), progress, deadline],
                    )
            measured = len(progress.trials[-1].gflops) - before
            progress.finish(max(most - known - measured, 0))
    return progress.trials


class _TimeIsUp(Exception):
    """Ends a tuner's loop."""


class _Deadline:
    """A tuner's callback that ends its loop after a moment, once all is logged."""

    def __init__(self, moment: float) -> None:
        self.moment = moment

    def __call__(self, *_: Any) -> None:
        if time.monotonic() >= self.moment:
            raise _TimeIsUp


def _heaviest(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """Most work in the network first; `limit` counts operators, each with all its tasks."""
    ordered = sorted(tasks, key=lambda task: -task.weight * task.flop)
    if limit is None:
        return ordered
    shapes = list(dict.fromkeys(task.args for task in ordered))[:limit]
    return [task for task in ordered if task.args in shapes]


def constant_bytes(mod: tvm.IRModule, params: Mapping[str, Any]) -> int:
    """Bytes of a model's parameters, between two uses of which an inference reads all others."""
    from tvm import relax

    from compiler.ir.constants import array_of, view_of

    total = sum(view_of(each).nbytes for each in params.values())
    functions = (each for each in mod.functions.values() if isinstance(each, relax.Function))
    arrays = (array_of(expr) for function in functions for expr in expressions_in(function))
    return total + sum(array.nbytes for array in arrays if array is not None)


def _measure_option(options: TuneOptions, constants: int) -> dict[str, Any]:
    from compiler import autotvm

    timing: dict[str, Any] = {
        "timeout": options.timeout,
        "number": options.number,
        "repeat": options.repeat,
        "min_repeat_ms": options.min_repeat_ms,
        "cooldown_interval": options.cooldown,
        "check_correctness": options.check,
    }
    if options.tracker is None:
        runner = autotvm.LocalRunner(**timing, constant_bytes=constants)
    else:
        host, port, key = options.tracker
        runner = autotvm.RPCRunner(key, host, port, **timing)
    return autotvm.measure_option(autotvm.LocalBuilder(timeout=options.timeout), runner)


def _close(option: dict[str, Any]) -> None:
    for part in option.values():
        part.close()


def _title(task: Task) -> str:
    shapes = [
        "x".join(map(str, arg[1]))
        for arg in task.args
        if isinstance(arg, tuple) and arg[:1] == ("TENSOR",)
    ]
    return f"{task.name} {' '.join(shapes)}"


def _note_fallbacks(trials: Sequence[Trials], found: Sequence[Comparison]) -> None:
    rates = {
        _title(task): task.flop / comparison.fallback_seconds / 1e9
        for comparison in found
        for task in comparison.tasks
    }
    for each in trials:
        each.fallback = rates.get(each.name, 0.0)


# --- the log of the best -----------------------------------------------------------------


def _line(comparison: Comparison) -> str | None:
    from compiler.autotvm import encode

    record = comparison.record()
    return None if record is None else encode(*record)


def _write_best(path: Path, lines: Sequence[str]) -> None:
    write_text(path, "".join(line + "\n" for line in lines))


def _sources(path: Path, lines: Sequence[str]) -> list[str]:
    return [f"topi:{path.name}:{number}" for number, _ in enumerate(lines, 1)]


# --- what is shown -----------------------------------------------------------------------


def show_tuned(tuned: Tuned, options: TuneOptions) -> None:
    """Print a line for each operator, then the network's latencies."""
    rows = []
    for comparison in tuned.comparisons:
        task = comparison.tasks[0]
        base = comparison.fallback_seconds
        best = comparison.winner[1] if comparison.winner else base
        rows.append(
            (
                " ".join(_title(task).split(" ")[1:]),
                task.weight,
                comparison.winner[0].task.name if comparison.winner else "fallback",
                f"{base * 1e6:.1f}",
                f"{best * 1e6:.1f}",
                f"{task.flop / best / 1e9:.1f}",
                f"{base / best:.2f}x",
            )
        )
    header = ("shapes", "calls", "fastest", "fallback us", "us", "GFLOP/s", "gain")
    show(table(header, rows, numbers=4))
    show_network(tuned, len(tuned.kept), options.best, "the fallback")
