"""Subcommands of `baton` for those who write partitioners in C++."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Steps, failures
from .options import CompilerFlag, Debug

commands = typer.Typer()
partitioner = typer.Typer(help="Partitioner libraries in C++.", no_args_is_help=True)
commands.add_typer(partitioner, name="partitioner")


@partitioner.callback()
def common() -> None:
    """Partitioner libraries in C++."""


@partitioner.command("build")
def build_command(
    *,
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="C++ files that include baton/partitioner.h or mxnet/lib_api.h.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The library, .so.")],
    flag: CompilerFlag,
    debug: Debug = False,
) -> None:
    """Compile a library with the system's C++ compiler, or $CXX, load it, and say what it has."""
    from compiler.mxnet import library

    from .compile import note_loaded

    steps = Steps()
    with failures(debug):
        with steps.step("compile", str(output)):
            library.build(sources, output, flag or ["-O2"])
        note_loaded(output, library.load(output, verbose=False), steps)


@commands.command("include-dir")
def include_dir_command() -> None:
    """Print the folder of the C++ headers for partitioner libraries."""
    from compiler.support.cxx import include_dir

    typer.echo(include_dir())
