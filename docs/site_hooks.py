"""What the documentation site is made of besides its pages: the reference of the command."""

from __future__ import annotations

from typing import Any

COMMAND = "reference/command.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page of the command, as its own help has it."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, COMMAND, content=command_page()))
    return files


def command_page() -> str:
    """Every subcommand of `baton` with its options, Markdown."""
    import typer.main
    from typer.cli import get_docs_for_click

    from compiler.cli.app import app

    command = typer.main.get_command(app)
    return str(get_docs_for_click(obj=command, ctx=typer.Context(command), name="baton"))
