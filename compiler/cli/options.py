"""Options that several subcommands of `baton` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    Path,
    typer.Argument(
        help="An ONNX file, NAME-symbol.json of MXNet, Relay text or saved JSON of TVM to 0.18, "
        "or a bundled model's name.",
        show_default=False,
    ),
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
Precision = Annotated[
    str,
    typer.Option(help='"strict" builds without algorithms that round differently.'),
]
Precisions = Annotated[
    str,
    typer.Option(help='Of Baton: "default", "strict", or both with a comma, measured in turn.'),
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


def texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(str(path) for path in paths)
