"""The command line of `baton`: options, and one function per subcommand."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from compiler.errors import InputError

from . import arguments
from .console import Steps, failures, show_json
from .models import find_model

app = typer.Typer(
    help="Compile ONNX models the relay.build way, on today's TVM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[
    Path, typer.Argument(help="An ONNX file, or a bundled model's name.", show_default=False)
]
Target = Annotated[str, typer.Option(help='Such as "llvm -mcpu=x86-64-v3" or "cuda -arch=sm_90".')]
TargetHost = Annotated[str | None, typer.Option(help="Of a GPU target; this machine if left out.")]
OptLevel = Annotated[int, typer.Option(min=0, max=4, help="3 lets layouts change.")]
Shape = Annotated[
    list[str],
    typer.Option(
        default_factory=list,
        show_default=False,
        metavar="NAME=N,C,H,W",
        help="Of an input; repeat for others.",
    ),
]
Log = Annotated[
    list[Path],
    typer.Option(
        default_factory=list, show_default=False, help="AutoTVM log to apply; may be repeated."
    ),
]
AutoSchedulerLog = Annotated[
    list[Path],
    typer.Option(
        default_factory=list,
        show_default=False,
        help="auto_scheduler log to apply; may be repeated.",
    ),
]
DisablePass = Annotated[
    list[str],
    typer.Option(default_factory=list, show_default=False, metavar="NAME", help="May be repeated."),
]
Backend = Annotated[
    list[str],
    typer.Option(
        default_factory=list,
        show_default=False,
        metavar="NAME",
        help="Partitioner; may be repeated.",
    ),
]
Plugin = Annotated[
    list[Path],
    typer.Option(
        default_factory=list,
        show_default=False,
        metavar="FILE.py",
        help="A .py or .so that registers partitioners. It is run: name only your own.",
    ),
]
BackendOption = Annotated[
    list[str],
    typer.Option(
        "--option",
        default_factory=list,
        show_default=False,
        metavar="KEY=VALUE",
        help="For the partitioners.",
    ),
]
Threads = Annotated[int, typer.Option(min=1, help="Of every engine.")]
Peers = Annotated[str, typer.Option(help="Comma-separated; empty for none.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often every engine is measured in turn.")]
Seconds = Annotated[float, typer.Option(min=0.01, help="Length of one measurement.")]
Seed = Annotated[int, typer.Option(help="Of random inputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class CacheAction(str, enum.Enum):
    """What `baton cache` does."""

    info = "info"
    clear = "clear"


@app.command("compile")
def compile_command(
    *,
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The library, .so or .tar.")
    ] = None,
    target: Target = "llvm",
    target_host: TargetHost = None,
    opt_level: OptLevel = 3,
    shape: Shape,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    disable_pass: DisablePass,
    backend: Backend,
    plugin: Plugin,
    option: BackendOption,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Build a library and print where the schedule of each kernel came from."""
    from .compile import BuildOptions, compile_model, show_compiled

    options = BuildOptions(
        target=target,
        target_host=target_host,
        opt_level=opt_level,
        disabled_passes=tuple(disable_pass),
        shapes=arguments.shapes(shape),
        logs=_texts(log),
        auto_scheduler_logs=_texts(auto_scheduler_log),
        backends=tuple(backend),
        plugins=_texts(plugin),
        backend_options=arguments.options(option),
    )
    with failures(debug):
        compiled = compile_model(find_model(str(model)), options, output, Steps())
        if as_json:
            show_json(compiled.to_json())
        else:
            show_compiled(compiled)


@app.command("partition")
def partition_command(
    *,
    model: Model,
    backend: Annotated[
        list[str], typer.Option(metavar="NAME", help="Partitioner; several run one by one.")
    ],
    plugin: Plugin,
    option: BackendOption,
    shape: Shape,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The module: .json as TVM saves it, else text."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="A page with the graph and all about its subgraphs.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="The graph alone, as an image.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Let backends claim subgraphs and print what they took."""
    from .compile import BuildOptions
    from .partition import partition_model, show_partitioned

    options = BuildOptions(
        shapes=arguments.shapes(shape),
        backends=tuple(backend),
        plugins=_texts(plugin),
        backend_options=arguments.options(option),
    )
    with failures(debug):
        partitioned = partition_model(
            find_model(str(model)), options, output, Steps(), html=html, svg=svg
        )
        if as_json:
            show_json(partitioned.to_json())
        else:
            show_partitioned(partitioned)


@app.command("include-dir")
def include_dir_command() -> None:
    """Print the folder of the C++ headers for partitioner libraries."""
    from compiler.library import include_dir

    typer.echo(include_dir())


@app.command("run")
def run_command(
    *,
    model: Annotated[
        Path,
        typer.Argument(
            help="An exported .so or .tar, an ONNX file, or an old TVM script.", show_default=False
        ),
    ],
    value: Annotated[
        list[str],
        typer.Option(
            "--input",
            default_factory=list,
            show_default=False,
            metavar="NAME=FILE.npy",
            help="May be repeated.",
        ),
    ],
    random: Annotated[
        bool, typer.Option("--random", help="Seeded values for inputs without a file.")
    ] = False,
    seed: Seed = 0,
    repeat: Annotated[int, typer.Option(min=0, help="Timed runs after the first.")] = 0,
    save: Annotated[Path | None, typer.Option(help="An .npz for the outputs.")] = None,
    target: Target = "llvm",
    shape: Shape,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a library or a model once, and time it if asked to.

    With a Python script written for an older TVM, `baton run script.py [its arguments]`, the
    script runs unchanged: tvm.relay, tvm.autotvm and their kin are there.
    """
    from .compile import BuildOptions
    from .run import run_model, show_ran

    files = arguments.input_files(value)
    options = BuildOptions(target=target, shapes=arguments.shapes(shape))
    with failures(debug):
        ran = run_model(
            find_model(str(model)),
            files,
            fill_random=random,
            seed=seed,
            repeat=repeat,
            save=save,
            options=options,
            steps=Steps(),
        )
        if as_json:
            show_json(ran.to_json())
        else:
            show_ran(ran)


@app.command("bench")
def bench_command(
    *,
    models: Annotated[
        list[str],
        typer.Argument(help="ONNX files, or names of bundled models.", show_default=False),
    ],
    threads: Threads = 1,
    peers: Peers = "onnxruntime,openvino,relax",
    rounds: Rounds = 7,
    seconds: Seconds = 1.0,
    pin: Annotated[
        str | None, typer.Option(metavar="CPUS", help="Stay on these, such as 0,2-3.")
    ] = None,
    seed: Seed = 0,
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help='Write JSON; "-" is stdout, without tables.'),
    ] = None,
    debug: Debug = False,
) -> None:
    """Measure Baton and its peers in turn, each in a process of its own."""
    from .bench import BenchOptions, benchmark, show_results, to_json
    from .compile import BuildOptions
    from .files import write_json

    options = BenchOptions(
        peers=arguments.names(peers),
        threads=threads,
        rounds=rounds,
        seconds=seconds,
        cpus=arguments.cpus(pin),
        seed=seed,
        build=BuildOptions(
            target=target,
            opt_level=opt_level,
            shapes=arguments.shapes(shape),
            logs=_texts(log),
            auto_scheduler_logs=_texts(auto_scheduler_log),
        ),
    )
    with failures(debug):
        results = benchmark(models, options, Steps())
        if json_file == "-":
            show_json(to_json(results, options))
            return
        show_results(results, options)
        if json_file is not None:
            write_json(Path(json_file), to_json(results, options))


@app.command("profile")
def profile_command(
    *,
    model: Annotated[
        Path,
        typer.Argument(
            help="An exported .so or .tar, an ONNX file, or an old TVM script.", show_default=False
        ),
    ],
    repeat: Annotated[int, typer.Option(min=1, help="Measured inferences.")] = 30,
    threads: Threads = 1,
    svg: Annotated[Path | None, typer.Option(help="Write a bar chart to this file.")] = None,
    seed: Seed = 0,
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    disable_pass: DisablePass,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure every kernel of a model: time, share, GFLOP/s, GB/s, source of its schedule."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .compile import BuildOptions
    from .profile import profile_model, show_profile, write_picture

    options = BuildOptions(
        target=target,
        opt_level=opt_level,
        disabled_passes=tuple(disable_pass),
        shapes=arguments.shapes(shape),
        logs=_texts(log),
        auto_scheduler_logs=_texts(auto_scheduler_log),
    )
    with failures(debug):
        profile = profile_model(find_model(str(model)), repeat, seed, options, Steps())
        if svg is not None:
            write_picture(profile, svg)
        if as_json:
            show_json(profile.to_json())
        else:
            show_profile(profile)


@app.command("kernels")
def kernels_command(
    *,
    models: Annotated[
        list[str],
        typer.Argument(help="ONNX files, or names of bundled models.", show_default=False),
    ],
    repeat: Annotated[int, typer.Option(min=1, help="Measured inferences.")] = 30,
    threads: Threads = 1,
    seed: Seed = 0,
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Hold every convolution and matrix product against the machine's measured peak."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .compile import BuildOptions
    from .kernel_bench import benchmark_kernels, show_kernel_results

    options = BuildOptions(
        target=target,
        opt_level=opt_level,
        shapes=arguments.shapes(shape),
        logs=_texts(log),
        auto_scheduler_logs=_texts(auto_scheduler_log),
    )
    with failures(debug):
        results = benchmark_kernels(models, options, threads, repeat, seed, Steps())
        if as_json:
            show_json(results.to_json())
        else:
            show_kernel_results(results)


@app.command("cache")
def cache_command(
    *,
    action: Annotated[
        CacheAction, typer.Argument(help="Show what it holds, or empty it.", show_default=False)
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """The compiled kernels that builds keep on disk."""
    from .cache import cache_usage, clear_cache, show_cleared, show_usage, usage_json

    with failures(debug):
        clear = action is CacheAction.clear
        usage = clear_cache() if clear else cache_usage()
        if as_json:
            show_json(usage_json(usage))
        elif clear:
            show_cleared(usage)
        else:
            show_usage(usage)


@app.command("replay")
def replay_command(
    *,
    model: Annotated[
        Path | None,
        typer.Argument(help="An ONNX file, or a bundled model's name.", show_default=False),
    ] = None,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    all_records: Annotated[
        list[Path],
        typer.Option(
            default_factory=list,
            show_default=False,
            metavar="LOG",
            help="Log of which every record is built and checked: AutoTVM's, or all of them of "
            "the old auto_scheduler; may be repeated.",
        ),
    ],
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    rounds: Rounds = 7,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Build a model with and without tuning logs, or check every record of a log."""
    from .compile import BuildOptions
    from .replay import check_records, replay_model, show_checked, show_replayed
    from .replay_ansor import check_ansor_records, is_ansor_log, show_checked_steps

    if (model is None) == (not all_records):
        raise typer.BadParameter("give a MODEL, or logs with --all-records")
    options = BuildOptions(
        target=target,
        opt_level=opt_level,
        shapes=arguments.shapes(shape),
        logs=_texts(log),
        auto_scheduler_logs=_texts(auto_scheduler_log),
    )
    all_right = True
    with failures(debug):
        if model is None:
            of_ansor = [is_ansor_log(path) for path in _texts(all_records)]
            if any(of_ansor) and not all(of_ansor):
                raise typer.BadParameter("give AutoTVM's and auto_scheduler's logs one by one")
            if all(of_ansor):
                replays = check_ansor_records(_texts(all_records), target, Steps())
                all_right = replays.all_right
                show_json(replays.to_json()) if as_json else show_checked_steps(replays)
            else:
                checked = check_records(_texts(all_records), target, Steps())
                all_right = checked.all_right
                show_json(checked.to_json()) if as_json else show_checked(checked)
        else:
            replayed = replay_model(find_model(str(model)), options, rounds, Steps())
            show_json(replayed.to_json()) if as_json else show_replayed(replayed)
    if not all_right:
        raise typer.Exit(1)


class TunerEngine(str, enum.Enum):
    """Whose tasks and records `baton tune` makes."""

    autotvm = "autotvm"
    auto_scheduler = "auto_scheduler"


@app.command("tune")
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
    trials: Annotated[int, typer.Option(min=1, help="Measurements of each task.")] = 64,
    early_stopping: Annotated[
        int | None, typer.Option(min=1, help="Stop a task after so many without a better one.")
    ] = None,
    op: Annotated[
        list[str],
        typer.Option(
            default_factory=list,
            show_default=False,
            metavar="NAME",
            help="Operator to tune, such as nn.conv2d; may be repeated. All by default.",
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Tune only so many operators, those with most work.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Picture of the best so far against trials.")
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
        picture=svg,
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
    )
    build = BuildOptions(target=target, shapes=arguments.shapes(shape))
    with failures(debug):
        if tuner is TunerEngine.auto_scheduler:
            from .tune_auto_scheduler import search_model, show_searched

            searched = search_model(find_model(str(model)), build, options, scheduler, Steps())
            show_json(searched.to_json()) if as_json else show_searched(searched)
            return
        if scheduler is not None:
            raise InputError("--scheduler goes with --tuner auto_scheduler")
        tuned = tune_model(find_model(str(model)), build, options, Steps())
        show_json(tuned.to_json()) if as_json else show_tuned(tuned, options)


@app.command("extract-tasks")
def extract_tasks_command(
    *,
    model: Model,
    target: Target = "llvm",
    shape: Shape,
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

    build = BuildOptions(target=target, shapes=arguments.shapes(shape))
    with failures(debug):
        extracted = extract_model_tasks(
            find_model(str(model)),
            build,
            include_simple=include_simple,
            folder=folder,
            steps=Steps(),
        )
        show_json(extracted.to_json()) if as_json else show_extracted(extracted)


@app.command("convert-log")
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
        show_json(converted.to_json()) if as_json else show_converted(converted, output)


@app.command("demo")
def demo_command(
    *,
    model: Annotated[
        str, typer.Argument(help="An ONNX file, or the name of a bundled model.")
    ] = "resnet18_v1",
    target: Target = "llvm",
    shape: Shape,
    threads: Threads = 1,
    peers: Peers = "relax,onnxruntime",
    rounds: Rounds = 5,
    seconds: Seconds = 1.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Import, partition, build, run, compare, export, load elsewhere, and measure one model."""
    from .bench import BenchOptions
    from .compile import BuildOptions
    from .demo import demonstrate, show_demonstration

    build = BuildOptions(target=target, shapes=arguments.shapes(shape))
    bench = BenchOptions(
        peers=arguments.names(peers), threads=threads, rounds=rounds, seconds=seconds
    )
    with failures(debug):
        found = demonstrate(model, build, bench, Steps())
        if as_json:
            show_json(found.to_json())
        else:
            show_demonstration(found, threads)
    if not found.is_right:
        raise typer.Exit(1)


def _texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(str(path) for path in paths)
