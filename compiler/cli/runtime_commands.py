"""Subcommands of `baton` for programs in C and C++ that run libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Steps, failures
from .options import CompilerFlag, Debug

commands = typer.Typer()
runtime = typer.Typer(help="The loader of libraries for C and C++.", no_args_is_help=True)
commands.add_typer(runtime, name="runtime")


@runtime.callback()
def common() -> None:
    """The loader of libraries for C and C++."""


@runtime.command("build")
def build_command(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder that gets include/ and lib/.")
    ],
    flag: CompilerFlag,
    debug: Debug = False,
) -> None:
    """Compile libbaton_runtime and install it with all that it needs, for pkg-config and CMake."""
    from compiler import native_runtime

    steps = Steps()
    with failures(debug), steps.step("compile", str(output)):
        native_runtime.build(output, flag or ["-O2"])
