"""Files that register partitioners, as the command line names them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def load_plugins(paths: Iterable[Path]) -> None:
    """Load Python files and C++ libraries that the user names, in order.

    Raises
    ------
    PartitionError
        A file can't be loaded; names it and, of a Python file, the line.
    """
    from compiler import library

    for path in paths:
        library.load(path)
