"""Options that several subcommands of `baton` have, and how help shows them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from . import arguments, completions
from .compile import BuildOptions
from .console import failures, show_found

MODEL, CODE, PRECISION = "The model", "The code", "Precision"
PARTITIONING, OUTPUT, TIMING = "Partitioning", "Output", "Timing"
"""Panels of options in the help of commands."""
Shown: TypeAlias = tuple[Any, Callable[[Any], None]] | None
"""The result of a command and the function that prints it, or None where nothing is to print."""


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
        register = super().command(name, cls=_Command, **settings)
        return register if "context_settings" in settings else lambda run: register(_reporting(run))


def _reporting(command: Callable[..., Any]) -> Callable[..., None]:
    """Give a command --debug, and --json if it returns `Shown`; print its result or its error."""
    hints = get_type_hints(command, include_extras=True)
    added = {"as_json": AsJson} if hints["return"] == Shown else {}
    added["debug"] = Debug

    def run(**given: Any) -> None:
        more = {name: given.pop(name) for name in added}
        with failures(more["debug"]):
            if found := command(**given):
                show_found(found[0], more["as_json"], found[1])

    own = inspect.signature(command).parameters
    kinds = [each.replace(annotation=hints[name]) for name, each in own.items()]
    kinds += [_parameter(name, kind, False) for name, kind in added.items()]
    return _with_parameters(run, command, kinds)


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _with_parameters(
    run: Callable[..., None], command: Callable[..., Any], kinds: list[inspect.Parameter]
) -> Callable[..., None]:
    """`run` with the name and the text of a command, and with these parameters."""
    functools.update_wrapper(run, command)
    vars(run).pop("__wrapped__")
    returned = get_type_hints(command, include_extras=True)["return"]
    run.__annotations__ = {each.name: each.annotation for each in kinds} | {"return": returned}
    vars(run)["__signature__"] = inspect.Signature(kinds)
    return run


def argument(help: str, **settings: Any) -> Any:
    """An argument of a command, shown without a default."""
    return typer.Argument(help=help, show_default=False, **settings)


def option(
    help: str, metavar: str | None = None, panel: str | None = None, *names: str, **settings: Any
) -> Any:
    """An option of a command; without `names`, one named as the parameter."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **settings)


def flag(help: str, name: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help, rich_help_panel=panel)


def several(help: str, metavar: str, panel: str | None = None, *names: str) -> Any:
    """An option that may be given any number of times, or never."""
    return option(help, metavar, panel, *names, default_factory=list, show_default=False)


def output(help: str, metavar: str = "FILE") -> Any:
    """The option `--output`."""
    return option(help, metavar, OUTPUT, "--output", "-o")


_MODEL_HELP = (
    "A model file: ONNX, .tflite, TorchScript (.pt), MXNet (NAME-symbol.json), Relay text, or a "
    "module that TVM 0.6 to 0.18 saved as JSON. The name of a bundled model also works."
)
Model = Annotated[Path, argument(_MODEL_HELP, autocompletion=completions.models)]
Models = Annotated[
    list[str],
    argument(
        "ONNX files, built libraries, or names of bundled models.",
        autocompletion=completions.models,
    ),
]
Runnable = Annotated[
    Path,
    argument(
        "A library (.so or .tar), a model file, a bundled model's name, or a Python script "
        "for an older TVM.",
        autocompletion=completions.models,
    ),
]
Target = Annotated[
    str,
    option(
        'What to compile for, such as "llvm -mcpu=x86-64-v3" or "cuda -arch=sm_90". Plain '
        '"llvm" is this machine\'s CPU.',
        "TARGET",
        CODE,
    ),
]
TargetHost = Annotated[
    str | None, option("Host CPU of a GPU target. The default is this machine's.", "TARGET", CODE)
]
OptLevel = Annotated[
    int,
    option(
        "Optimization level. Levels below 3 keep data layouts as they are.", "N", CODE, min=0, max=4
    ),
]
Shape = Annotated[
    list[str],
    several(
        "Shape of an input; repeat for other inputs. Write a name or ? for a dimension that is "
        "only known at run time.",
        "NAME=N,C,H,W",
        MODEL,
    ),
]
ImportLimit = Annotated[
    list[str],
    several(
        "Limit of an ONNX import: nodes, folded_bytes or seconds; may be repeated.",
        "LIMIT=N",
        MODEL,
    ),
]
Bound = Annotated[
    list[str], several("Upper bound of a dynamic dimension; may be repeated.", "SYMBOL=N", MODEL)
]
KVCache = Annotated[
    str | None,
    option(
        "Keep inputs that grow along SYMBOL in buffers with room for N rows.", "SYMBOL=N", MODEL
    ),
]
Specialize = Annotated[
    list[str],
    several(
        "Add specialized kernels for these sizes of a dynamic dimension; may be repeated.",
        "SYMBOL=N,N",
        MODEL,
    ),
]
Extents = Annotated[
    list[str],
    several(
        "Fix a dynamic dimension to a number, in all inputs that have it; may be repeated. For a "
        "library it is the size of random inputs.",
        "SYMBOL=N",
        MODEL,
        "--extent",
    ),
]
Log = Annotated[list[Path], several("AutoTVM log to apply; may be repeated.", "FILE", CODE)]
AutoSchedulerLog = Annotated[
    list[Path], several("Log of auto_scheduler to apply; may be repeated.", "FILE", CODE)
]
DisablePass = Annotated[
    list[str], several("Name of a build pass to skip; may be repeated.", "NAME", CODE)
]
Precision = Annotated[
    str,
    option(
        'What may be rounded: "default", "strict" (no algorithm that rounds differently), '
        '"fast" (also Strassen matmuls), "f32", "bf16", "f16", "tf32" (CUDA), or "int8" (needs '
        "--data).",
        "NAME",
        PRECISION,
        callback=arguments.precision,
        autocompletion=completions.precisions,
    ),
]
SAMPLES = "A folder of samples: .npz files with the inputs by name, or .npy files of one input."
Calibration = Annotated[
    str,
    option(
        'How the ranges of int8 values are found: "minmax", "percentile" or "kl".',
        "NAME",
        PRECISION,
        callback=arguments.calibration,
        autocompletion=completions.calibrations,
    ),
]
WeightBits = Annotated[
    int,
    option(
        "Bits of int8 weights: 8, or 7, which CPUs without VNNI multiply faster.",
        "N",
        PRECISION,
        min=7,
        max=8,
    ),
]
Precisions = Annotated[
    str,
    option(
        "Precisions of Baton to measure, separated by commas, such as default,bf16.",
        "NAMES",
        PRECISION,
        callback=arguments.precisions,
        autocompletion=completions.precisions,
    ),
]
Data = Annotated[Path | None, option(f"For --precision int8. {SAMPLES}", "FOLDER", PRECISION)]
Trust = Annotated[
    bool, flag("Accept a saved module (.json) that holds code. The code runs.", "--trust", MODEL)
]
Backend = Annotated[
    list[str],
    several(
        "Partitioners to run, separated by commas; may be repeated.", "NAME[,NAME...]", PARTITIONING
    ),
]
Placement = Annotated[
    str,
    option(
        'Choice of partitioners: "fastest" measures them and the build, part by part.',
        "NAME",
        PARTITIONING,
        callback=arguments.placement,
    ),
]
PlacementLog = Annotated[
    str,
    option("Log of measured placements, replayed where it knows the model.", "FILE", PARTITIONING),
]
Plugin = Annotated[
    list[Path],
    several(
        "A .py or .so file that registers partitioners. Its code runs: load only files you trust.",
        "FILE",
        PARTITIONING,
    ),
]
BackendOption = Annotated[
    list[str],
    several("Option for the partitioners; may be repeated.", "KEY=VALUE", PARTITIONING, "--option"),
]
Threads = Annotated[int, option("Threads of every engine.", "N", TIMING, min=1, max=1024)]
Peers = Annotated[
    str,
    option(
        "Engines to compare with, separated by commas; empty for none.",
        "NAMES",
        TIMING,
        autocompletion=completions.peers,
    ),
]
Rounds = Annotated[int, option("How often each candidate is measured.", "N", TIMING, min=1)]
Seconds = Annotated[float, option("Length of one measurement.", "S", TIMING, min=0.01)]
Input = Annotated[
    list[str], several("Value of an input; may be repeated.", "NAME=FILE.npy", None, "--input")
]
Random = Annotated[bool, flag("Fill inputs without a file with seeded random values.", "--random")]
Seed = Annotated[int, option("Seed of the random inputs.", "N")]
AsJson = Annotated[bool, flag("Print JSON, and nothing else, on stdout.", "--json", OUTPUT)]
CompilerFlag = Annotated[
    list[str],
    several(
        "Flag for the C++ compiler, such as --flag=-O3; may be repeated. The default is -O2.",
        "FLAG",
        None,
        "--flag",
    ),
]
Debug = Annotated[bool, flag("Show the traceback of an error.", "--debug", OUTPUT)]


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
    "placement_log": (PlacementLog, ""),
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


def builds(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command some options of builds, which it gets as its parameter `build`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(**given: Any) -> Any:
            fields = {}
            for name in names:
                field, read = _FIELDS.get(name, (name, lambda value: value))
                fields[field] = read(given.pop(name))
            return command(**given, build=BuildOptions(**fields))

        hints = get_type_hints(command, include_extras=True)
        kinds: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            if own.name == "build":
                kinds += [_parameter(name, *_BUILD_OPTIONS[name]) for name in names]
            else:
                kinds.append(own.replace(annotation=hints[own.name]))
        return _with_parameters(run, command, kinds)

    return decorate
