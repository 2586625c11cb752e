"""The command line of `baton`: options, and one function per subcommand."""

from __future__ import annotations

import enum
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import compiler

from . import arguments, completions, options
from .compile import BuildOptions
from .console import Steps, set_verbosity, show, show_json
from .models import find_model
from .options import OUTPUT, PARTITIONING, TIMING, argument, builds, flag, option, output, several
from .partitioner_commands import commands as partitioner_commands
from .runtime_commands import commands as runtime_commands
from .tuning_commands import commands as tuning_commands

BUILD, RUN, MEASURE, MACHINE = "Build", "Run", "Measure", "This machine"
"""Panels of commands in the help of `baton`; those of `tuning_commands` and others follow."""

app = options.Commands(
    help="Compile ONNX, PyTorch and Relay models for CPUs and GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
machine_commands = options.Commands()  # listed after all others


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
            help="Also print Baton's log on stderr; -vv prints more of it.",
            count=True,
            show_default=False,
        ),
    ] = 0,
) -> None:
    """Compile ONNX, PyTorch and Relay models for CPUs and GPUs."""
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
@builds(
    *("target", "target_host", "opt_level", "shape", "extent", "bound", "specialize", "kv_cache"),
    *("log", "auto_scheduler_log", "disable_pass", "precision", "data", "calibration"),
    *("weight_bits", "backend", "placement", "placement_log", "plugin", "option", "import_limit"),
    "trust",
)
def compile_command(
    *,
    model: options.Model,
    output: Annotated[Path | None, output("Library to write, .so or .tar.")] = None,
    build: BuildOptions,
) -> options.Shown:
    """Build a library and print where the schedule of each kernel came from."""
    from .cached_compile import compile_or_restore
    from .compile import show_compiled

    compiled = compile_or_restore(find_model(str(model)), build, output, Steps())
    return compiled, show_compiled


@app.command("models", rich_help_panel=BUILD)
def models_command(
    *,
    name: Annotated[
        str | None,
        argument(
            "Bundled model to write; without it the names are listed.",
            metavar="[NAME]",
            autocompletion=completions.bundled,
        ),
    ] = None,
    output: Annotated[Path | None, output("ONNX file to write. The default is NAME.onnx.")] = None,
) -> None:
    """List the bundled models, or write one as an ONNX file with random weights."""
    from .models import bundled, write_model

    if name is None:
        show("\n".join(bundled()))
        return
    path = output or Path(f"{name}.onnx")
    show(f"{path}: {write_model(name, path) / 1e6:.1f} MB, random weights")


@app.command("partition", rich_help_panel=BUILD)
@builds("plugin", "option", "shape", "extent")
def partition_command(
    *,
    model: options.Model,
    backend: Annotated[
        list[str], option("Partitioner to run; may be repeated.", "NAME", PARTITIONING)
    ],
    build: BuildOptions,
    output: Annotated[
        Path | None, output("Partitioned module to write: .json as TVM saves it, else text.")
    ] = None,
    dot: Annotated[
        Path | None,
        option("Write the graph with its subgraphs as Graphviz DOT text.", "FILE", OUTPUT),
    ] = None,
    explain: Annotated[
        bool, flag("Print where each operator runs, why, and what would help.", "--explain", OUTPUT)
    ] = False,
    what_if: Annotated[
        list[str],
        several(
            "Print what support of these operators would change; may be repeated.",
            "OP[,OP...]",
            OUTPUT,
            "--what-if",
        ),
    ],
) -> options.Shown:
    """Partition a model for backends and print the accepted subgraphs."""
    from .partition import partition_model, show_partitioned

    partitioned = partition_model(
        find_model(str(model)),
        replace(build, backends=tuple(backend)),
        output,
        Steps(),
        dot=dot,
        explain=explain,
        what_if=[arguments.names(each) for each in what_if],
    )
    return partitioned, show_partitioned


@app.command("run", rich_help_panel=RUN)
@builds("target", "precision", "shape", "extent", "import_limit", "plugin")
def run_command(
    *,
    model: options.Runnable,
    value: options.Input,
    random: options.Random = False,
    seed: options.Seed = 0,
    repeat: Annotated[int, option("Timed runs after the first.", "N", TIMING, min=0)] = 0,
    threads: Annotated[
        int | None,
        option(
            "Threads of a run. The default is TVM_NUM_THREADS, else all cores.",
            "N",
            TIMING,
            min=1,
            max=1024,
        ),
    ] = None,
    save: Annotated[Path | None, option("Write the outputs there.", "FILE.npz", OUTPUT)] = None,
    build: BuildOptions,
) -> options.Shown:
    """Run a library or a model once, and time it if asked to.

    A Python script that was written for an older TVM runs unchanged: baton run script.py
    [arguments of the script]. tvm.relay, tvm.autotvm and related modules are available to it, and
    so is baton run -m tvm.driver.tvmc.
    """
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .run import run_model, show_ran

    files = arguments.input_files(value)
    ran = run_model(
        find_model(str(model)),
        files,
        fill_random=random,
        seed=seed,
        repeat=repeat,
        save=save,
        options=build,
        steps=Steps(),
    )
    return ran, show_ran


@app.command("info", rich_help_panel=RUN)
@builds("shape", "extent")
def info_command(*, model: options.Runnable, build: BuildOptions) -> options.Shown:
    """Describe a model or a library: inputs, outputs, dynamic dimensions, target, versions."""
    from .info import describe, show_description

    return describe(find_model(str(model)), build), show_description


@app.command("bench", rich_help_panel=MEASURE)
@builds("target", "opt_level", "shape", "extent", "log", "auto_scheduler_log")
def bench_command(
    *,
    models: options.Models,
    threads: options.Threads = 1,
    peers: options.Peers = "onnxruntime,openvino,relax",
    rounds: options.Rounds = 7,
    seconds: options.Seconds = 1.0,
    pin: Annotated[
        str | None, option("Run on these CPUs only, such as 0,2-3.", "CPUS", TIMING)
    ] = None,
    seed: options.Seed = 0,
    build: BuildOptions,
    precision: options.Precisions = "default",
    model: Annotated[
        Path | None, option("ONNX file of a built library, to compare with peers.", "FILE")
    ] = None,
    output: Annotated[Path | None, output("JSON file to write the results to.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare Baton's latency with that of other engines, each in its own process."""
    from .bench import BenchOptions, benchmark, check_results, result_table, to_json
    from .files import write_json

    chosen = BenchOptions(
        peers=arguments.names(peers),
        threads=threads,
        rounds=rounds,
        seconds=seconds,
        cpus=arguments.cpus(pin),
        seed=seed,
        precisions=arguments.names(precision),
        build=build,
        model=model,
    )
    results = []
    for result in benchmark(models, chosen, Steps()):
        results.append(result)
        if not as_json:
            show(result_table(result, threads))
    if as_json:
        show_json(to_json(results, chosen))
    if output is not None:
        write_json(output, to_json(results, chosen))
    check_results(results)


_SIDE = 'A build, "baton" or "baton:precision=fast,disable=FastMath", or an engine, "onnxruntime".'
Side = Annotated[str, argument(_SIDE, autocompletion=completions.sides)]


@app.command("diff", rich_help_panel=MEASURE)
@builds("shape", "extent", "plugin")
def diff_command(
    *,
    a: Side,
    b: Side,
    model: options.Model,
    value: options.Input,
    random: options.Random = False,
    seed: options.Seed = 0,
    bisect: Annotated[bool, flag("Also find the responsible pass or region.", "--bisect")] = False,
    by: Annotated[str, option('What to compare: "values" or "time".', "NAME")] = "values",
    fuel: Annotated[
        int | None, option("Build with the first N optional passes only.", "N", min=0)
    ] = None,
    tolerance: Annotated[
        float, option("Relative error of a row that is accepted.", "X", min=0)
    ] = 1e-4,
    threads: options.Threads = 1,
    build: BuildOptions,
) -> options.Shown:
    """Name the first operator of an ONNX model whose results differ between builds or engines."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .diff import Difference

    path, files, start = (
        find_model(str(model)),
        arguments.input_files(value),
        seed if random else None,
    )
    found = Difference(
        path, a, b, files, start, by, bisect, fuel, tolerance, build=build, steps=Steps()
    )
    return found, Difference.show


@app.command("profile", rich_help_panel=MEASURE)
@builds(
    *("target", "opt_level", "shape", "extent", "log", "auto_scheduler_log", "disable_pass"),
    "precision",
)
def profile_command(
    *,
    model: options.Runnable,
    repeat: Annotated[int, option("Inferences to measure.", "N", TIMING, min=1)] = 30,
    threads: options.Threads = 1,
    seed: options.Seed = 0,
    build: BuildOptions,
    trace: Annotated[
        Path | None,
        option(
            "Write the last inference as a trace for Perfetto (ui.perfetto.dev) and Chrome.",
            "FILE.json",
            OUTPUT,
        ),
    ] = None,
) -> options.Shown:
    """Measure every kernel of a model: time, share, GFLOP/s and GB/s."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its threads
    from .files import write_json
    from .profile import profile_model, show_profile

    profile = profile_model(find_model(str(model)), repeat, seed, build, Steps())
    if trace is not None:
        write_json(trace, profile.trace())
    return profile, show_profile


@app.command("quantize", rich_help_panel=BUILD)
@builds("calibration", "weight_bits", "shape", "extent")
def quantize_command(
    *,
    model: Annotated[Path, argument("ONNX file to quantize.")],
    data: Annotated[Path, option(options.SAMPLES, "FOLDER")],
    output: Annotated[
        Path | None, output("ONNX file to write. The default is MODEL_int8.onnx.")
    ] = None,
    build: BuildOptions,
    skip: Annotated[list[str], several("Node to keep in float32; may be repeated.", "NODE")],
) -> options.Shown:
    """Quantize an ONNX model to int8 with samples and print the error of each layer."""
    from .model_files import with_extents
    from .quantize import quantize_model, show_quantized

    target = output or model.with_name(f"{model.stem}_int8.onnx")
    shapes = with_extents(model, build.shapes, build.extents)
    result = quantize_model(
        *(model, data, target, build.calibration, skip, shapes, Steps()), build.weight_bits
    )
    return result, show_quantized


@machine_commands.command("cache", rich_help_panel=MACHINE)
def cache_command(
    *,
    action: Annotated[CacheAction, argument("Print what the cache holds, or empty it.")],
    as_json: options.AsJson = False,
) -> None:
    """Print or clear the compiled kernels that builds keep on disk."""
    from .cache import cache_usage, clear_cache, show_cleared, show_usage, usage_json

    clear = action is CacheAction.clear
    usage = clear_cache() if clear else cache_usage()
    if as_json:
        show_json(usage_json(usage))
    elif clear:
        show_cleared(usage)
    else:
        show_usage(usage)


@machine_commands.command("doctor", rich_help_panel=MACHINE)
def doctor_command(*, as_json: options.AsJson = False) -> None:
    """Check that this machine has what builds and runs need; exit with 1 if CPU builds fail."""
    from .doctor import examine, show_findings

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
