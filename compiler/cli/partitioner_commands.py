"""Subcommands of `baton` for those who write partitioners in C++."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Steps
from .options import Commands, CompilerFlag, argument, output

PANEL = "Extend Baton in C++"

commands = Commands()
partitioner = Commands(help="Build partitioner libraries in C++.", no_args_is_help=True)
commands.add_typer(partitioner, name="partitioner", rich_help_panel=PANEL)


@partitioner.callback()
def common() -> None:
    """Build partitioner libraries in C++."""


@partitioner.command("build")
def build_command(
    *,
    sources: Annotated[
        list[Path], argument("C++ files that include baton/partitioner.h or mxnet/lib_api.h.")
    ],
    output: Annotated[Path, output("Library to write, .so.")],
    flag: CompilerFlag,
) -> None:
    """Compile a library with the system's C++ compiler, or $CXX, and list what it registers."""
    from compiler.mxnet import library

    from .compile import note_loaded

    steps = Steps()
    with steps.step("compile", str(output)):
        library.build(sources, output, flag or ["-O2"])
    note_loaded(output, library.load(output, verbose=False), steps)


@commands.command("include-dir", rich_help_panel=PANEL)
def include_dir_command() -> None:
    """Print the folder of the C++ headers for partitioner libraries."""
    from compiler.support.cxx import include_dir

    typer.echo(include_dir())
