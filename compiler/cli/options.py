"""Options that several subcommands of `baton` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def several(help: str, *names: str, metavar: str | None = None) -> Any:
    """An option that may be given any number of times, or never."""
    return typer.Option(
        *names, default_factory=list, show_default=False, metavar=metavar, help=help
    )


Model = Annotated[
    Path,
    typer.Argument(
        help="An ONNX, .tflite or TorchScript .pt file, NAME-symbol.json of MXNet, Relay text or "
        "saved JSON of TVM to 0.18, or a bundled model's name.",
        show_default=False,
    ),
]
Models = Annotated[
    list[str], typer.Argument(help="ONNX files, or names of bundled models.", show_default=False)
]
Runnable = Annotated[
    Path,
    typer.Argument(
        help="An exported .so or .tar, an ONNX file, or an old TVM script.", show_default=False
    ),
]
Target = Annotated[str, typer.Option(help='Such as "llvm -mcpu=x86-64-v3" or "cuda -arch=sm_90".')]
TargetHost = Annotated[str | None, typer.Option(help="Of a GPU target; this machine if left out.")]
OptLevel = Annotated[int, typer.Option(min=0, max=4, help="3 lets layouts change.")]
Shape = Annotated[
    list[str],
    several(
        "Of an input; repeat for others. A name, or ?, is a dynamic extent.",
        metavar="NAME=N,C,H,W",
    ),
]
ImportLimit = Annotated[
    list[str],
    several(
        "Of an ONNX import: nodes, folded_bytes or seconds; repeat for others.",
        metavar="LIMIT=N",
    ),
]
Bound = Annotated[list[str], several("Largest extent of a symbol.", metavar="SYMBOL=N")]
KVCache = Annotated[
    str | None,
    typer.Option(
        help="Keep inputs that grow along SYMBOL in buffers with room for N.", metavar="SYMBOL=N"
    ),
]
Specialize = Annotated[
    list[str],
    several("Kernels of their own for certain extents of a symbol.", metavar="SYMBOL=N,N"),
]
Extents = Annotated[
    list[str],
    several(
        "Number for a dynamic extent, in all inputs that have it; random inputs of an exported "
        "library get it, too.",
        "--extent",
        metavar="SYMBOL=N",
    ),
]
Log = Annotated[list[Path], several("AutoTVM log to apply; may be repeated.")]
AutoSchedulerLog = Annotated[list[Path], several("auto_scheduler log to apply; may be repeated.")]
DisablePass = Annotated[list[str], several("May be repeated.", metavar="NAME")]
Precision = Annotated[
    str,
    typer.Option(
        help='"int8" (with --data), "bf16", "f16", "f32", "tf32" (CUDA), "strict" (no algorithm '
        'that rounds differently), "fast" (Strassen matmuls, too) or "default".'
    ),
]
SAMPLES = "A folder of samples: .npz files with the inputs by name, or .npy files of one."
Calibration = Annotated[str, typer.Option(help='Of ranges: "minmax", "percentile" or "kl".')]
WeightBits = Annotated[
    int,
    typer.Option(help="Of int8 weights: 8, or 7, which CPUs without VNNI multiply faster."),
]
Precisions = Annotated[
    str,
    typer.Option(help="Of Baton: some of those of compile with commas between, measured in turn."),
]
Backend = Annotated[list[str], several("Partitioner; may be repeated.", metavar="NAME")]
Plugin = Annotated[
    list[Path],
    several(
        "A .py or .so that registers partitioners. It is run: name only your own.",
        metavar="FILE.py",
    ),
]
BackendOption = Annotated[
    list[str], several("For the partitioners.", "--option", metavar="KEY=VALUE")
]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Of every engine.")]
Peers = Annotated[str, typer.Option(help="Comma-separated; empty for none.")]
Rounds = Annotated[int, typer.Option(min=1, help="How often every engine is measured in turn.")]
Seconds = Annotated[float, typer.Option(min=0.01, help="Length of one measurement.")]
Seed = Annotated[int, typer.Option(help="Of random inputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
CompilerFlag = Annotated[
    list[str],
    typer.Option(
        "--flag",
        default_factory=list,
        show_default=False,
        metavar="FLAG",
        help="For the C++ compiler, such as --flag=-O3; may be repeated. -O2 without any.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(str(path) for path in paths)
