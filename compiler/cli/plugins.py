"""Files that register partitioners, as the command line names them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .console import Steps


def load_plugins(paths: Iterable[Path], steps: Steps) -> None:
    """Load Python files and C++ libraries that the user names, in order, and say what they bring.

    Raises
    ------
    PartitionError
        A file can't be loaded; names it and, of a Python file, the line.
    """
    from compiler import library

    for path in paths:
        note_partitioners(path, library.load(path), steps)


def note_partitioners(path: Path, names: Iterable[str], steps: Steps) -> None:
    """Print the partitioners of a file, with their strategies."""
    from compiler.backends import partitioner

    brought = [
        f"{name} ({', '.join(strategy.name for strategy in partitioner(name).strategies)})"
        for name in names
    ]
    steps.note(f"{path} registers {', '.join(brought) or 'no partitioner'}")
