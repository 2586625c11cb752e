"""Name tables, text files in the folder of a module."""

from __future__ import annotations

import re
from pathlib import Path


def read_table(module: str, name: str) -> list[list[str]]:
    """Rows of cells of a text file.

    "|" separates cells. A line that begins with "#" is a comment; an indented line continues the
    row above it.

    `module`: path of the Python file beside it, `__file__`. `name`: of the text file.
    """
    lines = Path(module).with_name(name).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return [
        [" ".join(cell.split()) for cell in row.split("|")] for row in re.split(r"\n(?! )", text)
    ]


def names_in_state(table: list[list[str]], state: str) -> dict[str, str]:
    """Name to note of the rows "state | names | note" of a state."""
    return {name: note for each, names, note in table if each == state for name in names.split()}
