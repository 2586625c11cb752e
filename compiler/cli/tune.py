"""`baton tune`: measure configs of a model's kernels, keep those that pay, show what they gain."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.records.untrusted_json import mean_seconds

from ..ir.rewrite import expressions_in
from .compile import BuildOptions, build_module, import_model
from .console import Steps, interrupt_hint, show, table
from .files import write_text
from .tuned_network import Gain, prune, show_network

if TYPE_CHECKING:
    import tvm

    from compiler.autotvm.confirm import Comparison
    from compiler.autotvm.task import Task


@dataclass(frozen=True)
class TuneOptions:
    """How a model is tuned."""

    log: Path  # every measurement; appended to, and what it holds is not measured again
    best: Path  # the records that beat the fallback; overwritten
    trials: int = 64  # of each task, those in the log included
    algorithm: str = "xgb_knob"  # as `autotvm.tuner.make_tuner` takes it
    operators: tuple[str, ...] = ()  # such as "nn.conv2d"; all if empty
    early_stopping: int | None = None
    timeout: float = 20.0  # seconds for a build, and for all runs, of one candidate
    number: int = 4  # this, `repeat` and `min_repeat_ms`: see `measure.RunOptions`
    repeat: int = 3
    min_repeat_ms: int = 10
    cooldown: float = 0.0  # seconds of rest after each candidate
    check: bool = True  # compare each candidate's result with numpy's
    tracker: tuple[str, int, str] | None = None  # (host, port, key): measure on its devices
    rounds: int = 7  # of the comparisons at the end
    limit: int | None = None  # only the tasks with the most work
    seconds: float | None = None  # shared by the tasks; the comparisons come on top

    @property
    def how_to_continue(self) -> str:
        """For a run that is interrupted."""
        return f"measurements are kept in {self.log}; the same command continues from them"

    @property
    def timing(self) -> dict[str, Any]:
        """Arguments of any runner."""
        return {
            "timeout": self.timeout,
            "number": self.number,
            "repeat": self.repeat,
            "min_repeat_ms": self.min_repeat_ms,
            "cooldown_interval": self.cooldown,
        }


@dataclass(frozen=True)
class Tuned(Gain):
    """Result of tuning."""

    # For each operator and shape, the fallback and the finalists with their times
    comparisons: list[Comparison]
    best: Path  # the log of the records that are kept

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        operators = [
            {
                "task": comparison.tasks[0].name,
                "args": comparison.tasks[0].args,
                "calls": comparison.tasks[0].weight,
                "fallback_seconds": comparison.fallback_seconds,
                "seconds": comparison.winner[1] if comparison.winner else None,
                "winner": comparison.winner[0].task.name if comparison.winner else None,
            }
            for comparison in self.comparisons
        ]
        sources = [f"topi:{self.best.name}:{number + 1}" for number in range(len(self.kept))]
        return {"operators": operators, **super().to_json(), "records": sources}


def tune_model(
    model: Path, build: BuildOptions, options: TuneOptions, steps: Steps | None = None
) -> Tuned:
    """Tune a model's kernels and write the log of the best.

    A run that was interrupted is continued by the same call.
    """
    from compiler.autotvm import confirm, encode, load_from_file, task

    steps = steps or Steps()
    mod, params = import_model(model, build, steps)
    with steps.step("extract tasks"):
        tasks = task.extract_from_program(
            mod, params, build.target, build.target_host, options.operators or None
        )
        tasks = _heaviest(tasks, options.limit)
    option = _measure_option(options, constant_bytes(mod, params))
    steps.note(f"tune {len(tasks)} tasks, {options.trials} trials each")
    with interrupt_hint(options.how_to_continue):
        measure_tasks(tasks, option, options, steps)
    with steps.step("compare with the fallback", f"{options.rounds} rounds"):
        records = list(load_from_file(options.log)) if options.log.exists() else []
        found = confirm.comparisons(tasks, records)
        confirm.run_comparisons(found, option, options.rounds)
    for part in option.values():
        part.close()
    winners = (comparison.record() for comparison in found)
    lines = [encode(*record) for record in winners if record is not None]

    def library(kept: Sequence[str]) -> Any:
        write_text(options.best, "".join(line + "\n" for line in kept))
        logs = (*build.logs, str(options.best)) if kept else build.logs
        return build_module(mod, params, replace(build, logs=logs), Steps(quiet=True))

    if options.tracker is not None:
        write_text(options.best, "".join(line + "\n" for line in lines))
        return Tuned(lines, 0, [], [], found, options.best)
    with steps.step("measure the network"):
        kept, times, without = prune(library, lines, options.rounds, steps)
    return Tuned(kept, len(lines) - len(kept), times, without, found, options.best)


def measure_tasks(
    tasks: Sequence[Task], option: dict[str, Any], options: TuneOptions, steps: Steps | None = None
) -> None:
    """Run a tuner on each task; configs that the log has are not measured again."""
    from compiler.autotvm import callback, load_from_file
    from compiler.autotvm.tuner import make_tuner

    steps = steps or Steps()
    records = list(load_from_file(options.log)) if options.log.exists() else []
    planned = [min(options.trials, len(task.config_space)) for task in tasks]
    end = math.inf if options.seconds is None else time.monotonic() + options.seconds
    with _Progress(sum(planned), steps) as progress:
        for position, (task, most) in enumerate(zip(tasks, planned)):
            tuner = make_tuner(options.algorithm, task)
            tuner.load_history(records)
            known = len(tuner.visited)
            progress.start(_title(task), tuner.best_flops / 1e9, min(known, most))
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
            progress.finish(max(most - known - progress.measured, 0))


class _Progress:
    """A callback of tuners: current and best rate, trials and time left on a terminal.

    Elsewhere it prints a line for each task. `total` counts the trials of all tasks.
    """

    def __init__(self, total: int, steps: Steps) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._live, self._steps = steps.shows_progress, steps
        self._total, self._done, self._started = total, 0, time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(
            TextColumn("{task.description}"), *columns, console=console, disable=not self._live
        )
        self._row = self._bar.add_task("", total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, name: str, best: float, known: int) -> None:
        """Begin a task, of which `known` trials were measured before, the best at `best`."""
        self._name, self._best, self.measured = name, best, 0
        self._done += known
        self._show(0.0)

    def __call__(self, tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        flop = tuner.task.flop / 1e9
        rates = [flop / mean_seconds(each.costs, each.error_no) for each in results]
        self._best = max([self._best, *rates])
        self.measured += len(rates)
        self._done += len(rates)
        self._show(max(rates, default=0.0))

    def finish(self, skipped: int) -> None:
        """End a task; `skipped` trials were planned and not needed."""
        self._done += skipped
        if not self._live:
            seconds = time.monotonic() - self._started
            left = seconds / max(self._done, 1) * max(self._total - self._done, 0)
            self._steps.note(
                f"{self._name}: best {self._best:.1f} GFLOP/s in {self.measured} trials; "
                f"{self._done}/{self._total} trials, {seconds:.0f} s, {left:.0f} s left"
            )

    def _show(self, current: float) -> None:
        rates = f"{current:.1f} now, {self._best:.1f} best GFLOP/s"
        self._bar.update(self._row, completed=self._done, description=f"{self._name}  {rates}")


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

    timing = {**options.timing, "check_correctness": options.check}
    if options.tracker is None:
        runner = autotvm.LocalRunner(**timing, constant_bytes=constants)
    else:
        host, port, key = options.tracker
        runner = autotvm.RPCRunner(key, host, port, **timing)
    return autotvm.measure_option(autotvm.LocalBuilder(timeout=options.timeout), runner)


def _title(task: Task) -> str:
    shapes = [
        "x".join(map(str, arg[1]))
        for arg in task.args
        if isinstance(arg, tuple) and arg[:1] == ("TENSOR",)
    ]
    return f"{task.name} {' '.join(shapes)}"


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
    show_network(tuned, options.best, "the fallback")
