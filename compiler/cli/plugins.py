"""Files that register partitioners, as the command line names them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .console import Steps

if TYPE_CHECKING:
    from compiler.mxnet.library import Loaded


def load_plugins(paths: Iterable[Path], steps: Steps) -> None:
    """Load Python files and C++ libraries that the user names, in order, and say what they bring.

    Raises PartitionError: a file can't be loaded; names it and, of a Python file, the line.
    """
    from compiler.mxnet import library

    for path in paths:
        note_loaded(path, library.load(path), steps)


def note_loaded(path: Path, found: Loaded, steps: Steps) -> None:
    """Print what a file registers: partitioners with their strategies, passes, operators."""
    from compiler.backends import get_partitioner

    brought = [
        f"{name} ({', '.join(strategy.name for strategy in get_partitioner(name).strategies)})"
        for name in found
    ]
    brought += [f"pass {name}" for name in found.passes]
    brought += [f"operator {name}" for name in found.operators]
    steps.note(f"{path} registers {', '.join(brought) or 'nothing'}")
