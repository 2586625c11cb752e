"""The command line of `baton`: options, and one function per subcommand."""

from __future__ import annotations

import enum
import os
import warnings
from pathlib import Path
from typing import Annotated

import typer

import compiler

from . import arguments, completions
from .console import Steps, failures, set_verbosity, show, show_found, show_json
from .models import find_model
from .options import (
    MODEL,
    OUTPUT,
    PARTITIONING,
    PRECISION,
    SAMPLES,
    TIMING,
    AsJson,
    AutoSchedulerLog,
    Backend,
    BackendOption,
    Bound,
    Calibration,
    Commands,
    Debug,
    DisablePass,
    Extents,
    ImportLimit,
    KVCache,
    Log,
    Model,
    Models,
    OptLevel,
    Peers,
    Plugin,
    Precision,
    Precisions,
    Rounds,
    Runnable,
    Seconds,
    Seed,
    Shape,
    Specialize,
    Target,
    TargetHost,
    Threads,
    WeightBits,
    output,
    several,
    texts,
)
from .partitioner_commands import commands as partitioner_commands
from .runtime_commands import commands as runtime_commands
from .tuning_commands import commands as tuning_commands

BUILD, RUN, MEASURE, MACHINE = "Build", "Run", "Measure", "This machine"
"""Panels of commands in the help of `baton`; those of `tuning_commands` and others follow."""

app = Commands(
    help="Compile ONNX models the relay.build way, on today's TVM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
machine_commands = Commands()  # listed after all others


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"baton {compiler.__version__}, TVM {version('apache-tvm')}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of Baton and TVM.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only results and errors.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Also print Baton's log on stderr; -vv prints more of it.",
        ),
    ] = 0,
) -> None:
    """Compile ONNX models the relay.build way, on today's TVM."""
    if quiet:
        context.with_resource(warnings.catch_warnings())
        warnings.simplefilter("ignore")
    set_verbosity(-1 if quiet else verbose)
    context.call_on_close(lambda: set_verbosity(0))


class CacheAction(str, enum.Enum):
    """Actions of `baton cache`."""

    info = "info"
    clear = "clear"


@app.command("compile", rich_help_panel=BUILD)
def compile_command(
    *,
    model: Model,
    output: Annotated[Path | None, output("Library to write, .so or .tar.")] = None,
    target: Target = "llvm",
    target_host: TargetHost = None,
    opt_level: OptLevel = 3,
    shape: Shape,
    extent: Extents,
    bound: Bound,
    specialize: Specialize,
    kv_cache: KVCache = None,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    disable_pass: DisablePass,
    precision: Precision = "default",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help=f"For --precision int8. {SAMPLES}", rich_help_panel=PRECISION
        ),
    ] = None,
    calibration: Calibration = "minmax",
    weight_bits: WeightBits = 8,
    backend: Backend,
    plugin: Plugin,
    option: BackendOption,
    import_limit: ImportLimit,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Accept a saved module (.json) that holds code. The code runs.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Build a library and print where the schedule of each kernel came from."""
    from .cached_compile import compile_or_restore
    from .compile import BuildOptions, show_compiled

    options = BuildOptions(
        target=target,
        target_host=target_host,
        opt_level=opt_level,
        disabled_passes=tuple(disable_pass),
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
        bounds=arguments.extents(bound, "--bound"),
        sizes=arguments.sizes(specialize),
        kv_cache=arguments.extents([kv_cache] if kv_cache else [], "--kv-cache"),
        logs=texts(log),
        auto_scheduler_logs=texts(auto_scheduler_log),
        backends=tuple(backend),
        plugins=texts(plugin),
        backend_options=arguments.options(option),
        precision=precision,
        samples=data,
        calibration=calibration,
        weight_bits=weight_bits,
        import_limits=arguments.import_limits(import_limit),
        trust=trust,
    )
    with failures(debug):
        compiled = compile_or_restore(find_model(str(model)), options, output, Steps())
        show_found(compiled, as_json, show_compiled)


@app.command("models", rich_help_panel=BUILD)
def models_command(
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Bundled model to write; without it the names are listed.",
            show_default=False,
            autocompletion=completions.bundled,
        ),
    ] = None,
    output: Annotated[Path | None, output("ONNX file to write. The default is NAME.onnx.")] = None,
    debug: Debug = False,
) -> None:
    """List the bundled models, or write one as an ONNX file with random weights."""
    from .models import bundled, write_model

    with failures(debug):
        if name is None:
            show("\n".join(bundled()))
            return
        path = output or Path(f"{name}.onnx")
        show(f"{path}: {write_model(name, path) / 1e6:.1f} MB, random weights")


@app.command("partition", rich_help_panel=BUILD)
def partition_command(
    *,
    model: Model,
    backend: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Partitioner to run; may be repeated.",
            rich_help_panel=PARTITIONING,
        ),
    ],
    plugin: Plugin,
    option: BackendOption,
    shape: Shape,
    extent: Extents,
    output: Annotated[
        Path | None, output("Partitioned module to write: .json as TVM saves it, else text.")
    ] = None,
    dot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the graph with its subgraphs as Graphviz DOT text.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Print where each operator runs, why, and what would help.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    what_if: Annotated[
        list[str],
        several(
            "Print what support of these operators would change; may be repeated.",
            "--what-if",
            metavar="OP[,OP...]",
            panel=OUTPUT,
        ),
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Partition a model for backends and print the accepted subgraphs."""
    from .compile import BuildOptions
    from .partition import partition_model, show_partitioned

    options = BuildOptions(
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
        backends=tuple(backend),
        plugins=texts(plugin),
        backend_options=arguments.options(option),
    )
    with failures(debug):
        partitioned = partition_model(
            find_model(str(model)),
            options,
            output,
            Steps(),
            dot=dot,
            explain=explain,
            what_if=[arguments.names(each) for each in what_if],
        )
        show_found(partitioned, as_json, show_partitioned)


@app.command("run", rich_help_panel=RUN)
def run_command(
    *,
    model: Runnable,
    value: Annotated[
        list[str],
        several("Value of an input; may be repeated.", "--input", metavar="NAME=FILE.npy"),
    ],
    random: Annotated[
        bool, typer.Option("--random", help="Fill inputs without a file with seeded random values.")
    ] = False,
    seed: Seed = 0,
    repeat: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Timed runs after the first.", rich_help_panel=TIMING
        ),
    ] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            metavar="N",
            help="Threads of a run. The default is TVM_NUM_THREADS, else all cores.",
            rich_help_panel=TIMING,
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Write the outputs there.", rich_help_panel=OUTPUT),
    ] = None,
    target: Target = "llvm",
    precision: Precision = "default",
    shape: Shape,
    extent: Extents,
    import_limit: ImportLimit,
    plugin: Plugin,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a library or a model once, and time it if asked to.

    A Python script that was written for an older TVM runs unchanged: baton run script.py
    [arguments of the script]. tvm.relay, tvm.autotvm and related modules are available to it, and
    so is baton run -m tvm.driver.tvmc.
    """
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .compile import BuildOptions
    from .run import run_model, show_ran

    files = arguments.input_files(value)
    options = BuildOptions(
        target=target,
        precision=precision,
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
        plugins=texts(plugin),
        import_limits=arguments.import_limits(import_limit),
    )
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
        show_found(ran, as_json, show_ran)


@app.command("info", rich_help_panel=RUN)
def info_command(
    *,
    model: Runnable,
    shape: Shape,
    extent: Extents,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Describe a model or a library: inputs, outputs, dynamic dimensions, target, versions."""
    from .compile import BuildOptions
    from .info import describe, show_description

    options = BuildOptions(
        shapes=arguments.shapes(shape), extents=arguments.extents(extent, "--extent")
    )
    with failures(debug):
        show_found(describe(find_model(str(model)), options), as_json, show_description)


@app.command("bench", rich_help_panel=MEASURE)
def bench_command(
    *,
    models: Models,
    threads: Threads = 1,
    peers: Peers = "onnxruntime,openvino,relax",
    rounds: Rounds = 7,
    seconds: Seconds = 1.0,
    pin: Annotated[
        str | None,
        typer.Option(
            metavar="CPUS", help="Run on these CPUs only, such as 0,2-3.", rich_help_panel=TIMING
        ),
    ] = None,
    seed: Seed = 0,
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    extent: Extents,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    precision: Precisions = "default",
    output: Annotated[Path | None, output("JSON file to write the results to.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare Baton's latency with that of other engines, each in its own process."""
    from .bench import BenchOptions, benchmark, check_results, result_table, to_json
    from .compile import BuildOptions
    from .files import write_json

    options = BenchOptions(
        peers=arguments.names(peers),
        threads=threads,
        rounds=rounds,
        seconds=seconds,
        cpus=arguments.cpus(pin),
        seed=seed,
        precisions=arguments.names(precision),
        build=BuildOptions(
            target=target,
            opt_level=opt_level,
            shapes=arguments.shapes(shape),
            extents=arguments.extents(extent, "--extent"),
            logs=texts(log),
            auto_scheduler_logs=texts(auto_scheduler_log),
        ),
    )
    with failures(debug):
        results = []
        for result in benchmark(models, options, Steps()):
            results.append(result)
            if not as_json:
                show(result_table(result, threads))
        if as_json:
            show_json(to_json(results, options))
        if output is not None:
            write_json(output, to_json(results, options))
        check_results(results)


@app.command("profile", rich_help_panel=MEASURE)
def profile_command(
    *,
    model: Runnable,
    repeat: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Inferences to measure.", rich_help_panel=TIMING),
    ] = 30,
    threads: Threads = 1,
    seed: Seed = 0,
    target: Target = "llvm",
    opt_level: OptLevel = 3,
    shape: Shape,
    extent: Extents,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    disable_pass: DisablePass,
    precision: Precision = "default",
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write the last inference as a trace for Perfetto (ui.perfetto.dev) and Chrome.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure every kernel of a model: time, share, GFLOP/s and GB/s."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .compile import BuildOptions
    from .files import write_json
    from .profile import profile_model, show_profile

    options = BuildOptions(
        target=target,
        opt_level=opt_level,
        disabled_passes=tuple(disable_pass),
        shapes=arguments.shapes(shape),
        extents=arguments.extents(extent, "--extent"),
        logs=texts(log),
        auto_scheduler_logs=texts(auto_scheduler_log),
        precision=precision,
    )
    with failures(debug):
        profile = profile_model(find_model(str(model)), repeat, seed, options, Steps())
        if trace is not None:
            write_json(trace, profile.trace())
        show_found(profile, as_json, show_profile)


@app.command("quantize", rich_help_panel=BUILD)
def quantize_command(
    *,
    model: Annotated[Path, typer.Argument(help="ONNX file to quantize.", show_default=False)],
    data: Annotated[Path, typer.Option(metavar="FOLDER", help=SAMPLES)],
    output: Annotated[
        Path | None, output("ONNX file to write. The default is MODEL_int8.onnx.")
    ] = None,
    calibration: Calibration = "minmax",
    weight_bits: WeightBits = 8,
    skip: Annotated[
        list[str], several("Node to keep in float32; may be repeated.", metavar="NODE")
    ],
    shape: Shape,
    extent: Extents,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Quantize an ONNX model to int8 with samples and print the error of each layer."""
    from .model_files import with_extents
    from .quantize import quantize_model, show_quantized

    target = output or model.with_name(f"{model.stem}_int8.onnx")
    extents = arguments.extents(extent, "--extent")
    with failures(debug):
        shapes = with_extents(model, arguments.shapes(shape), extents)
        result = quantize_model(
            model, data, target, calibration, skip, shapes, Steps(), weight_bits
        )
        show_found(result, as_json, show_quantized)


@machine_commands.command("cache", rich_help_panel=MACHINE)
def cache_command(
    *,
    action: Annotated[
        CacheAction,
        typer.Argument(help="Print what the cache holds, or empty it.", show_default=False),
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Print or clear the compiled kernels that builds keep on disk."""
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


@machine_commands.command("doctor", rich_help_panel=MACHINE)
def doctor_command(*, as_json: AsJson = False, debug: Debug = False) -> None:
    """Check that this machine has what builds and runs need; exit with 1 if CPU builds fail."""
    from .doctor import examine, show_findings

    with failures(debug):
        found = examine()
        if as_json:
            show_json(found)
        else:
            show_findings(found)
    if found["problems"]:
        raise typer.Exit(1)


@machine_commands.command(
    "tvmc",
    rich_help_panel="Old TVM",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def tvmc(context: typer.Context) -> None:
    """Run TVM 0.18's command with its flags: tvmc compile, tvmc run, tvmc tune."""
    from .tvmc.main import main

    main(context.args)


app.add_typer(tuning_commands)
app.add_typer(partitioner_commands)
app.add_typer(runtime_commands)
app.add_typer(machine_commands)
