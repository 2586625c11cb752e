"""The command line of `baton`: options, and one function per subcommand."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

import compiler

from . import arguments
from .console import Steps, failures, set_verbosity, show, show_found, show_json
from .models import find_model
from .options import (
    SAMPLES,
    AsJson,
    AutoSchedulerLog,
    Backend,
    BackendOption,
    Bound,
    Calibration,
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
    several,
    texts,
)
from .partitioner_commands import commands as partitioner_commands
from .runtime_commands import commands as runtime_commands
from .tuning_commands import commands as tuning_commands

app = typer.Typer(
    help="Compile ONNX models the relay.build way, on today's TVM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(tuning_commands)
app.add_typer(partitioner_commands)
app.add_typer(runtime_commands)


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
        typer.Option("--version", help="Of Baton and TVM.", callback=_show_version, is_eager=True),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress on stderr, only errors.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, help="What Baton logs, on stderr; -vv: more."),
    ] = 0,
) -> None:
    """Compile ONNX models the relay.build way, on today's TVM."""
    set_verbosity(-1 if quiet else verbose)
    context.call_on_close(lambda: set_verbosity(0))


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
    extent: Extents,
    bound: Bound,
    specialize: Specialize,
    kv_cache: KVCache = None,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    disable_pass: DisablePass,
    precision: Precision = "default",
    data: Annotated[Path | None, typer.Option(help=f"For int8. {SAMPLES}")] = None,
    calibration: Calibration = "minmax",
    weight_bits: WeightBits = 8,
    backend: Backend,
    plugin: Plugin,
    option: BackendOption,
    import_limit: ImportLimit,
    trust: Annotated[
        bool, typer.Option("--trust", help="Accept a saved module (.json) that holds code.")
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


@app.command("models")
def models_command(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The bundled model to write.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The ONNX file. [default: NAME.onnx]")
    ] = None,
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
    extent: Extents,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The module: .json as TVM saves it, else text."),
    ] = None,
    dot: Annotated[
        Path | None, typer.Option(help="Write the graph with its subgraphs as Graphviz DOT text.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Where each operator runs, why, what would help.")
    ] = False,
    what_if: Annotated[
        list[str],
        several("What support of it would change.", "--what-if", metavar="OP[,OP...]"),
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


@app.command("run")
def run_command(
    *,
    model: Runnable,
    value: Annotated[list[str], several("May be repeated.", "--input", metavar="NAME=FILE.npy")],
    random: Annotated[
        bool, typer.Option("--random", help="Seeded values for inputs without a file.")
    ] = False,
    seed: Seed = 0,
    repeat: Annotated[int, typer.Option(min=0, help="Timed runs after the first.")] = 0,
    save: Annotated[Path | None, typer.Option(help="An .npz for the outputs.")] = None,
    target: Target = "llvm",
    shape: Shape,
    extent: Extents,
    import_limit: ImportLimit,
    plugin: Plugin,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run a library or a model once, and time it if asked to.

    With a Python script written for an older TVM, `baton run script.py [its arguments]`, the
    script runs unchanged: tvm.relay, tvm.autotvm and related modules are available.
    """
    from .compile import BuildOptions
    from .run import run_model, show_ran

    files = arguments.input_files(value)
    options = BuildOptions(
        target=target,
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


@app.command("bench")
def bench_command(
    *,
    models: Models,
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
    extent: Extents,
    log: Log,
    auto_scheduler_log: AutoSchedulerLog,
    precision: Precisions = "default",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A JSON file with the results.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure Baton and its peers in turn, each in a process of its own."""
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


@app.command("profile")
def profile_command(
    *,
    model: Runnable,
    repeat: Annotated[int, typer.Option(min=1, help="Measured inferences.")] = 30,
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
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure every kernel of a model: time, share, GFLOP/s, GB/s, source of its schedule."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .compile import BuildOptions
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
        show_found(profile, as_json, show_profile)


@app.command("quantize")
def quantize_command(
    *,
    model: Annotated[Path, typer.Argument(help="An ONNX file.", show_default=False)],
    data: Annotated[Path, typer.Option(help=SAMPLES)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="MODEL_int8.onnx if left out.")
    ] = None,
    calibration: Calibration = "minmax",
    weight_bits: WeightBits = 8,
    skip: Annotated[list[str], several("A layer that stays in float32.", metavar="NODE")],
    shape: Shape,
    extent: Extents,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Quantize an ONNX model's layers with samples, and show the error that each adds."""
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


@app.command("doctor")
def doctor_command(*, as_json: AsJson = False, debug: Debug = False) -> None:
    """What is on this machine of all that builds and runs need; 1 if builds for the CPU fail."""
    from .doctor import examine, show_findings

    with failures(debug):
        found = examine()
        if as_json:
            show_json(found)
        else:
            show_findings(found)
    if found["problems"]:
        raise typer.Exit(1)


@app.command(
    "tvmc",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def tvmc(context: typer.Context) -> None:
    """TVM's old command as it was: tvmc compile, run, tune."""
    from .tvmc.main import main

    main(context.args)
