"""Subcommands of `baton` for machines that run libraries: C and C++, the wheel of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Steps, failures
from .options import CompilerFlag, Debug, several

commands = typer.Typer()
runtime = typer.Typer(
    help="What machines need that run libraries: for C and C++, for Python.", no_args_is_help=True
)
commands.add_typer(runtime, name="runtime")


@runtime.callback()
def common() -> None:
    """What machines need that run libraries: for C and C++, for Python."""


@runtime.command("build")
def build_command(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder that gets include/ and lib/.")
    ],
    flag: CompilerFlag,
    wheel: Annotated[
        list[Path],
        several(
            "apache-tvm's or apache-tvm-ffi's for another kind of processor, which $CXX compiles "
            "for; both are needed.",
            "--wheel",
            metavar="WHEEL",
        ),
    ],
    debug: Debug = False,
) -> None:
    """Compile libbaton_runtime and install it with all that it needs, for pkg-config and CMake."""
    from compiler.runtime.packaging.cpp_runtime import build_cpp_runtime

    steps = Steps()
    with failures(debug), steps.step("compile", str(output)):
        build_cpp_runtime(output, flag or ["-O2"], wheel)


@runtime.command("wheel")
def wheel_command(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that gets the wheel.")],
    tvm: Annotated[
        Path | None,
        typer.Option(
            metavar="WHEEL",
            help="Of apache-tvm, of the same version, for another kind of processor.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the wheel baton-runtime, which runs libraries without the compiler."""
    from compiler.runtime.packaging.runtime_wheel import build_runtime_wheel

    steps = Steps()
    with failures(debug), steps.step("write", str(output)):
        build_runtime_wheel(output, tvm)
