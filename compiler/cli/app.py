"""The command line of `baton`: options, and one function per subcommand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
        help="Registers partitioners. It is run: name only your own.",
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
        partitioned = partition_model(find_model(str(model)), options, output, Steps())
        if as_json:
            show_json(partitioned.to_json())
        else:
            show_partitioned(partitioned)


@app.command("run")
def run_command(
    *,
    model: Annotated[
        Path, typer.Argument(help="An exported .so or .tar, or an ONNX file.", show_default=False)
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
    """Run a library or a model once, and time it if asked to."""
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
