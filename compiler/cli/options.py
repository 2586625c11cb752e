"""Options that several subcommands of `baton` have, and how help shows them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from . import arguments, completions
from .compile import BuildOptions

MODEL, CODE, PRECISION = "The model", "The code", "Precision"
PARTITIONING, OUTPUT, TIMING = "Partitioning", "Output", "Timing"
"""Panels of options in the help of commands."""


def _hide_types_of_flags(params: list[Any]) -> list[Any]:
    """Leave the column of types empty for options that take no value."""
    for param in params:
        if getattr(param, "is_flag", False) or getattr(param, "count", False):
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


class Commands(typer.Typer):
    """A group of subcommands whose help shows no types of flags."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=_Command, **settings)


def several(help: str, *names: str, metavar: str | None = None, panel: str | None = None) -> Any:
    """An option that may be given any number of times, or never."""
    return typer.Option(
        *names,
        default_factory=list,
        show_default=False,
        metavar=metavar,
        help=help,
        rich_help_panel=panel,
    )


def output(help: str, metavar: str = "FILE") -> Any:
    """The option `--output`."""
    return typer.Option("--output", "-o", metavar=metavar, help=help, rich_help_panel=OUTPUT)


_MODEL_HELP = (
    "A model file: ONNX, .tflite, TorchScript (.pt), MXNet (NAME-symbol.json), Relay text, or a "
    "module that TVM 0.6 to 0.18 saved as JSON. The name of a bundled model also works."
)
Model = Annotated[
    Path,
    typer.Argument(help=_MODEL_HELP, show_default=False, autocompletion=completions.models),
]
Models = Annotated[
    list[str],
    typer.Argument(
        help="ONNX files, built libraries, or names of bundled models.",
        show_default=False,
        autocompletion=completions.models,
    ),
]
Runnable = Annotated[
    Path,
    typer.Argument(
        help="A library (.so or .tar), a model file, a bundled model's name, or a Python script "
        "for an older TVM.",
        show_default=False,
        autocompletion=completions.models,
    ),
]
Target = Annotated[
    str,
    typer.Option(
        metavar="TARGET",
        help='What to compile for, such as "llvm -mcpu=x86-64-v3" or "cuda -arch=sm_90". Plain '
        '"llvm" is this machine\'s CPU.',
        rich_help_panel=CODE,
    ),
]
TargetHost = Annotated[
    str | None,
    typer.Option(
        metavar="TARGET",
        help="Host CPU of a GPU target. The default is this machine's.",
        rich_help_panel=CODE,
    ),
]
OptLevel = Annotated[
    int,
    typer.Option(
        min=0,
        max=4,
        metavar="N",
        help="Optimization level. Levels below 3 keep data layouts as they are.",
        rich_help_panel=CODE,
    ),
]
Shape = Annotated[
    list[str],
    several(
        "Shape of an input; repeat for other inputs. Write a name or ? for a dimension that is "
        "only known at run time.",
        metavar="NAME=N,C,H,W",
        panel=MODEL,
    ),
]
ImportLimit = Annotated[
    list[str],
    several(
        "Limit of an ONNX import: nodes, folded_bytes or seconds; may be repeated.",
        metavar="LIMIT=N",
        panel=MODEL,
    ),
]
Bound = Annotated[
    list[str],
    several(
        "Upper bound of a dynamic dimension; may be repeated.", metavar="SYMBOL=N", panel=MODEL
    ),
]
KVCache = Annotated[
    str | None,
    typer.Option(
        help="Keep inputs that grow along SYMBOL in buffers with room for N rows.",
        metavar="SYMBOL=N",
        rich_help_panel=MODEL,
    ),
]
Specialize = Annotated[
    list[str],
    several(
        "Add specialized kernels for these sizes of a dynamic dimension; may be repeated.",
        metavar="SYMBOL=N,N",
        panel=MODEL,
    ),
]
Extents = Annotated[
    list[str],
    several(
        "Fix a dynamic dimension to a number, in all inputs that have it; may be repeated. For a "
        "library it is the size of random inputs.",
        "--extent",
        metavar="SYMBOL=N",
        panel=MODEL,
    ),
]
Log = Annotated[
    list[Path], several("AutoTVM log to apply; may be repeated.", metavar="FILE", panel=CODE)
]
AutoSchedulerLog = Annotated[
    list[Path],
    several("Log of auto_scheduler to apply; may be repeated.", metavar="FILE", panel=CODE),
]
DisablePass = Annotated[
    list[str],
    several("Name of a build pass to skip; may be repeated.", metavar="NAME", panel=CODE),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help='What may be rounded: "default", "strict" (no algorithm that rounds differently), '
        '"fast" (also Strassen matmuls), "f32", "bf16", "f16", "tf32" (CUDA), or "int8" (needs '
        "--data).",
        callback=arguments.precision,
        autocompletion=completions.precisions,
        rich_help_panel=PRECISION,
    ),
]
SAMPLES = "A folder of samples: .npz files with the inputs by name, or .npy files of one input."
Calibration = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help='How the ranges of int8 values are found: "minmax", "percentile" or "kl".',
        callback=arguments.calibration,
        autocompletion=completions.calibrations,
        rich_help_panel=PRECISION,
    ),
]
WeightBits = Annotated[
    int,
    typer.Option(
        min=7,
        max=8,
        metavar="N",
        help="Bits of int8 weights: 8, or 7, which CPUs without VNNI multiply faster.",
        rich_help_panel=PRECISION,
    ),
]
Precisions = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Precisions of Baton to measure, separated by commas, such as default,bf16.",
        callback=arguments.precisions,
        autocompletion=completions.precisions,
        rich_help_panel=PRECISION,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help=f"For --precision int8. {SAMPLES}", rich_help_panel=PRECISION
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Accept a saved module (.json) that holds code. The code runs.",
        rich_help_panel=MODEL,
    ),
]
Backend = Annotated[
    list[str],
    several(
        "Partitioners to run, separated by commas; may be repeated.",
        metavar="NAME[,NAME...]",
        panel=PARTITIONING,
    ),
]
Placement = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help='Choice of partitioners: "fastest" measures each of them alone, and the build.',
        callback=arguments.placement,
        rich_help_panel=PARTITIONING,
    ),
]
Plugin = Annotated[
    list[Path],
    several(
        "A .py or .so file that registers partitioners. Its code runs: load only files you trust.",
        metavar="FILE",
        panel=PARTITIONING,
    ),
]
BackendOption = Annotated[
    list[str],
    several(
        "Option for the partitioners; may be repeated.",
        "--option",
        metavar="KEY=VALUE",
        panel=PARTITIONING,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        min=1, max=1024, metavar="N", help="Threads of every engine.", rich_help_panel=TIMING
    ),
]
Peers = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Engines to compare with, separated by commas; empty for none.",
        autocompletion=completions.peers,
        rich_help_panel=TIMING,
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="How often each candidate is measured.", rich_help_panel=TIMING
    ),
]
Seconds = Annotated[
    float,
    typer.Option(min=0.01, metavar="S", help="Length of one measurement.", rich_help_panel=TIMING),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the random inputs.")]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, and nothing else, on stdout.", rich_help_panel=OUTPUT),
]
CompilerFlag = Annotated[
    list[str],
    typer.Option(
        "--flag",
        default_factory=list,
        show_default=False,
        metavar="FLAG",
        help="Flag for the C++ compiler, such as --flag=-O3; may be repeated. The default is -O2.",
    ),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT),
]


def texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(str(path) for path in paths)


_BUILD_OPTIONS: dict[str, tuple[Any, Any]] = {
    "target": (Target, "llvm"),
    "target_host": (TargetHost, None),
    "opt_level": (OptLevel, 3),
    "shape": (Shape, inspect.Parameter.empty),
    "extent": (Extents, inspect.Parameter.empty),
    "bound": (Bound, inspect.Parameter.empty),
    "specialize": (Specialize, inspect.Parameter.empty),
    "kv_cache": (KVCache, None),
    "log": (Log, inspect.Parameter.empty),
    "auto_scheduler_log": (AutoSchedulerLog, inspect.Parameter.empty),
    "disable_pass": (DisablePass, inspect.Parameter.empty),
    "precision": (Precision, "default"),
    "data": (Data, None),
    "calibration": (Calibration, "minmax"),
    "weight_bits": (WeightBits, 8),
    "backend": (Backend, inspect.Parameter.empty),
    "placement": (Placement, ""),
    "plugin": (Plugin, inspect.Parameter.empty),
    "option": (BackendOption, inspect.Parameter.empty),
    "import_limit": (ImportLimit, inspect.Parameter.empty),
    "trust": (Trust, False),
}
"""Options of builds, and their defaults."""

_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "shape": ("shapes", arguments.shapes),
    "extent": ("extents", lambda words: arguments.extents(words, "--extent")),
    "bound": ("bounds", lambda words: arguments.extents(words, "--bound")),
    "specialize": ("sizes", arguments.sizes),
    "kv_cache": ("kv_cache", lambda word: arguments.extents([word] if word else [], "--kv-cache")),
    "log": ("logs", texts),
    "auto_scheduler_log": ("auto_scheduler_logs", texts),
    "disable_pass": ("disabled_passes", tuple),
    "data": ("samples", lambda folder: folder),
    "backend": ("backends", lambda words: arguments.names(*words)),
    "plugin": ("plugins", texts),
    "option": ("backend_options", arguments.options),
    "import_limit": ("import_limits", arguments.import_limits),
}
"""Fields of `BuildOptions` that have another name or form than their option."""


def builds(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command some options of builds, which it gets as its parameter `build`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**given: Any) -> None:
            fields = {}
            for name in names:
                field, read = _FIELDS.get(name, (name, lambda value: value))
                fields[field] = read(given.pop(name))
            command(**given, build=BuildOptions(**fields))

        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            if own.name != "build":
                parameters.append(own.replace(annotation=hints[own.name]))
                continue
            for name in names:
                kind, default = _BUILD_OPTIONS[name]
                parameters.append(
                    inspect.Parameter(name, own.kind, default=default, annotation=kind)
                )
        functools.update_wrapper(run, command)
        vars(run).pop("__wrapped__")
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate
