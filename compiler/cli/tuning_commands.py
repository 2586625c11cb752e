"""Subcommands of `baton` on tuning: replay, tune, extract-tasks, convert-log."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from compiler.errors import InputError

from . import arguments
from .console import Steps, failures, show_found
from .models import find_model
from .options import (
    AsJson,
    AutoSchedulerLog,
    Debug,
    Extents,
    Log,
    Model,
    OptLevel,
    Rounds,
    Shape,
    Target,
    Threads,
    several,
    texts,
)

commands = typer.Typer()


@commands.command("replay")
def replay_command(
    *,
    model: Model,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    extent: Extents,
    rounds: Rounds = 7,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Build a model with and without tuning logs and compare their latencies and outputs."""
    from .compile import BuildOptions
    from .replay import replay_model, show_replayed

    options = BuildOptions(
        target=target,
        opt_level=opt_level,
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
        logs=texts(log),
        auto_scheduler_logs=texts(auto_scheduler_log),
    )
    with failures(debug):
        replayed = replay_model(find_model(str(model)), options, rounds, Steps())
        show_found(replayed, as_json, show_replayed)


class TunerEngine(str, enum.Enum):
    """Tuner used by `baton tune`."""

    autotvm = "autotvm"
    auto_scheduler = "auto_scheduler"


@commands.command("tune")
def tune_command(
    *,
    model: Model,
    log: Annotated[
        Path, typer.Option(help="Every measurement; a run is continued from what it holds.")
    ],
    best: Annotated[
        Path | None,
        typer.Option(help="The records that pay, for `--log` of other commands; LOG.best."),
    ] = None,
    tuner: Annotated[TunerEngine, typer.Option(help="What is tuned.")] = TunerEngine.autotvm,
    algorithm: Annotated[
        str,
        typer.Option(help="xgb_knob, xgb_itervar, xgb_curve, xgb_rank, ga, random, gridsearch."),
    ] = "xgb_knob",
    trials: Annotated[
        int, typer.Option("--trials", "--trials-per-task", min=1, help="Measurements of each task.")
    ] = 64,
    early_stopping: Annotated[
        int | None, typer.Option(min=1, help="Stop a task after this many without an improvement.")
    ] = None,
    op: Annotated[
        list[str],
        several(
            "Operator to tune, such as nn.conv2d; may be repeated. All by default.", metavar="NAME"
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Tune only this many operators, those with most work.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Measure no longer than this; comparisons at the end are extra."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a build, and a run.")] = 20.0,
    number: Annotated[int, typer.Option(min=1, help="Runs that a repeat averages.")] = 4,
    repeat: Annotated[int, typer.Option(min=1, help="Repeats of a measurement.")] = 3,
    min_repeat_ms: Annotated[int, typer.Option(min=0, help="Least time of a repeat.")] = 10,
    cooldown: Annotated[float, typer.Option(min=0, help="Seconds of rest after each run.")] = 0.0,
    check: Annotated[bool, typer.Option(help="Compare each result with numpy's.")] = True,
    tracker: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT/KEY", help="Measure on devices of this RPC tracker."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            help="Build and measure on the workers of this Dask scheduler (auto_scheduler).",
        ),
    ] = None,
    rounds: Rounds = 7,
    threads: Threads = 1,
    target: Target = "llvm",
    shape: Shape,
    extent: Extents,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Tune a model's kernels and keep the records that make it faster."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .compile import BuildOptions
    from .tune import TuneOptions, show_tuned, tune_model

    options = TuneOptions(
        log=log,
        best=best or log.with_name(log.name + ".best"),
        trials=trials,
        algorithm=algorithm,
        operators=tuple(op),
        early_stopping=early_stopping,
        timeout=timeout,
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        cooldown=cooldown,
        check=check,
        tracker=arguments.tracker(tracker),
        rounds=rounds,
        limit=limit,
        seconds=seconds,
    )
    build = BuildOptions(
        target=target,
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
    )
    with failures(debug):
        if tuner is TunerEngine.auto_scheduler:
            from .tune_auto_scheduler import search_model, show_searched

            searched = search_model(find_model(str(model)), build, options, scheduler, Steps())
            show_found(searched, as_json, lambda each: show_searched(each, options))
            return
        if scheduler is not None:
            raise InputError("--scheduler goes with --tuner auto_scheduler")
        tuned = tune_model(find_model(str(model)), build, options, Steps())
        show_found(tuned, as_json, lambda each: show_tuned(each, options))


@commands.command("extract-tasks")
def extract_tasks_command(
    *,
    model: Model,
    target: Target = "llvm",
    shape: Shape,
    extent: Extents,
    include_simple: Annotated[
        bool, typer.Option("--include-simple", help="Also kernels that reduce nothing.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="One TIR file per task goes there.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the kernels of a model that a search would tune."""
    from .compile import BuildOptions
    from .extract_tasks import extract_model_tasks, show_extracted

    build = BuildOptions(
        target=target,
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
    )
    with failures(debug):
        extracted = extract_model_tasks(
            find_model(str(model)),
            build,
            include_simple=include_simple,
            folder=folder,
            steps=Steps(),
        )
        show_found(extracted, as_json, show_extracted)


@commands.command("convert-log")
def convert_log_command(
    *,
    logs: Annotated[
        list[Path], typer.Argument(help="AutoTVM logs of any age.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The log in the current form.")],
    best: Annotated[bool, typer.Option("--best", help="Keep the best of each workload.")] = False,
    drop_failed: Annotated[
        bool, typer.Option("--drop-failed", help="Leave out failed measurements.")
    ] = False,
    metaschedule: Annotated[
        bool,
        typer.Option(
            "--metaschedule",
            help="From a MetaSchedule database folder to an auto_scheduler log, or back.",
        ),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Rewrite old tuning logs in the current form, and say what was dropped and why."""
    from .console import show
    from .convert_log import convert_database, convert_logs, show_converted

    with failures(debug):
        if metaschedule:
            written = sum(convert_database(log, output) for log in logs)
            show(f"{written} records in {output}")
            return
        converted = convert_logs(logs, output, best, drop_failed)
        show_found(converted, as_json, lambda each: show_converted(each, output))
