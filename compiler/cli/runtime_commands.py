"""Subcommands of `baton` for machines that run libraries: C and C++, the wheel of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .console import Steps
from .options import Commands, CompilerFlag, option, output, several

commands = Commands()
runtime = Commands(
    help="Package the runtime for machines that only run libraries.", no_args_is_help=True
)
commands.add_typer(runtime, name="runtime", rich_help_panel="Run")


@runtime.callback()
def common() -> None:
    """Package the runtime for machines that only run libraries."""


@runtime.command("build")
def build_command(
    *,
    output: Annotated[Path, output("Folder that gets include/ and lib/.", "FOLDER")],
    flag: CompilerFlag,
    wheel: Annotated[
        list[Path],
        several(
            "Wheels of apache-tvm and of apache-tvm-ffi for another architecture, which $CXX "
            "compiles for; give the option twice.",
            "WHEEL",
            None,
            "--wheel",
        ),
    ],
) -> None:
    """Compile the runtime for C and C++, with files for pkg-config and CMake."""
    from compiler.runtime.packaging.cpp_runtime import build_cpp_runtime

    steps = Steps()
    with steps.step("compile", str(output)):
        build_cpp_runtime(output, flag or ["-O2"], wheel)


@runtime.command("wheel")
def wheel_command(
    *,
    output: Annotated[Path, output("Folder that gets the wheel.", "FOLDER")],
    tvm: Annotated[
        Path | None,
        option("Wheel of apache-tvm, of the same version, for another architecture.", "WHEEL"),
    ] = None,
) -> None:
    """Write the wheel baton-runtime, which runs libraries without the compiler."""
    from compiler.runtime.packaging.runtime_wheel import build_runtime_wheel

    steps = Steps()
    with steps.step("write", str(output)):
        build_runtime_wheel(output, tvm)
