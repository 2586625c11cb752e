"""Subcommands of `baton` on tuning: replay, tune, extract-tasks, convert-log."""

from __future__ import annotations

import enum
import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from compiler.errors import InputError

from . import arguments, options
from .compile import BuildOptions
from .console import Steps
from .models import find_model
from .options import TIMING, argument, builds, flag, option, output, several

TUNE = "Tune"
SEARCH = "The search"
"""Panels of commands in the help of `baton`, and of options in the help of `baton tune`."""

commands = options.Commands()


@commands.command("replay", rich_help_panel="Measure")
@builds("log", "auto_scheduler_log", "target", "opt_level", "shape", "extent")
def replay_command(
    *, model: options.Model, build: BuildOptions, rounds: options.Rounds = 7
) -> options.Shown:
    """Build a model with and without tuning logs and compare their latencies and outputs."""
    from .replay import replay_model, show_replayed

    replayed = replay_model(find_model(str(model)), build, rounds, Steps())
    return replayed, show_replayed


class TunerEngine(str, enum.Enum):
    """Tuners of `baton tune`."""

    autotvm = "autotvm"
    auto_scheduler = "auto_scheduler"


@commands.command("tune", rich_help_panel=TUNE)
@builds("target", "shape", "extent")
def tune_command(
    *,
    model: options.Model,
    log: Annotated[
        Path,
        option(
            "Log of every measurement. A run that was interrupted continues from it.",
            "FILE",
            SEARCH,
        ),
    ],
    best: Annotated[
        Path | None,
        option(
            "Log of the records that pay, for --log of other commands. The default is LOG.best.",
            "FILE",
            SEARCH,
        ),
    ] = None,
    tuner: Annotated[
        TunerEngine,
        option("Tune the templates of autotvm, or search with auto_scheduler.", "NAME", SEARCH),
    ] = TunerEngine.autotvm,
    algorithm: Annotated[
        str,
        option(
            "Tuner of AutoTVM: xgb_knob, xgb_itervar, xgb_curve, xgb_rank, ga, random or "
            "gridsearch.",
            "NAME",
            SEARCH,
        ),
    ] = "xgb_knob",
    trials: Annotated[int, option("Measurements of each task.", "N", SEARCH, min=1)] = 64,
    early_stopping: Annotated[
        int | None,
        option(
            "Stop a task after this many measurements without an improvement.", "N", SEARCH, min=1
        ),
    ] = None,
    op: Annotated[
        list[str],
        several(
            "Operator to tune, such as nn.conv2d; may be repeated. The default is all operators.",
            "NAME",
            SEARCH,
        ),
    ],
    limit: Annotated[
        int | None,
        option("Tune only this many operators, those with most work.", "N", SEARCH, min=1),
    ] = None,
    seconds: Annotated[
        float | None,
        option(
            "Time limit of the search. The comparisons at the end are extra.", "S", SEARCH, min=1
        ),
    ] = None,
    timeout: Annotated[
        float, option("Time limit in seconds of one build, and of one run.", "S", TIMING, min=0.1)
    ] = 20.0,
    number: Annotated[int, option("Runs that a repeat averages.", "N", TIMING, min=1)] = 4,
    repeat: Annotated[int, option("Repeats of a measurement.", "N", TIMING, min=1)] = 3,
    min_repeat_ms: Annotated[
        int, option("Shortest time of a repeat, in milliseconds.", "MS", TIMING, min=0)
    ] = 10,
    cooldown: Annotated[
        float, option("Pause in seconds after each run.", "S", TIMING, min=0)
    ] = 0.0,
    check: Annotated[bool, option("Compare each result with numpy's.", None, TIMING)] = True,
    tracker: Annotated[
        str | None, option("Measure on devices of this RPC tracker.", "HOST:PORT/KEY", TIMING)
    ] = None,
    scheduler: Annotated[
        str | None,
        option(
            "With auto_scheduler: build and measure on the workers of the Dask scheduler "
            "at tcp://HOST:PORT.",
            "ADDRESS",
            TIMING,
        ),
    ] = None,
    rounds: options.Rounds = 7,
    threads: options.Threads = 1,
    build: BuildOptions,
) -> options.Shown:
    """Tune a model's kernels and keep the records that make it faster."""
    given = locals()
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .tune import TuneOptions, show_tuned, tune_model

    given["tracker"] = arguments.tracker(tracker)
    given |= {"best": best or log.with_name(log.name + ".best"), "operators": tuple(op)}
    chosen = TuneOptions(**{each.name: given[each.name] for each in fields(TuneOptions)})
    if tuner is TunerEngine.auto_scheduler:
        from .tune_auto_scheduler import search_model, show_searched

        searched = search_model(find_model(str(model)), build, chosen, scheduler, Steps())
        return searched, lambda each: show_searched(each, chosen)
    if scheduler is not None:
        raise InputError("--scheduler goes with --tuner auto_scheduler")
    tuned = tune_model(find_model(str(model)), build, chosen, Steps())
    return tuned, lambda each: show_tuned(each, chosen)


@commands.command("extract-tasks", rich_help_panel=TUNE)
@builds("target", "shape", "extent")
def extract_tasks_command(
    *,
    model: options.Model,
    build: BuildOptions,
    include_simple: Annotated[
        bool, flag("Also list kernels without a reduction.", "--include-simple")
    ] = False,
    folder: Annotated[Path | None, option("Write one TIR file per task there.", "FOLDER")] = None,
) -> options.Shown:
    """List the kernels of a model that a search would tune."""
    from .extract_tasks import extract_model_tasks, show_extracted

    extracted = extract_model_tasks(
        find_model(str(model)), build, include_simple=include_simple, folder=folder, steps=Steps()
    )
    return extracted, show_extracted


@commands.command("convert-log", rich_help_panel=TUNE)
def convert_log_command(
    *,
    logs: Annotated[list[Path], argument("AutoTVM logs of any TVM version.")],
    output: Annotated[Path, output("Log to write, in today's format.")],
    best: Annotated[bool, flag("Keep only the best record of each workload.", "--best")] = False,
    drop_failed: Annotated[bool, flag("Leave out failed measurements.", "--drop-failed")] = False,
    metaschedule: Annotated[
        bool,
        flag(
            "Convert a MetaSchedule database folder to an auto_scheduler log, or back.",
            "--metaschedule",
        ),
    ] = False,
) -> options.Shown:
    """Rewrite old tuning logs in today's format, and print what was dropped and why."""
    from .console import show
    from .convert_log import convert_database, convert_logs, show_converted

    if metaschedule:
        written = sum(convert_database(log, output) for log in logs)
        show(f"{written} records in {output}")
        return None
    converted = convert_logs(logs, output, best, drop_failed)
    return converted, lambda each: show_converted(each, output)
