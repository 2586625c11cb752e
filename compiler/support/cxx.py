"""The C++ compiler of this machine, and the headers that Baton ships."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from compiler.errors import PartitionError


def include_dir() -> Path:
    """Folder of the C++ headers, for `-I`: `baton/partitioner.h` lies in it."""
    return Path(__file__).parents[1] / "include"


def cxx_command() -> list[str]:
    """The command of $CXX, else of the first C++ compiler on PATH.

    Raises PartitionError: there is none.
    """
    named = os.environ.get("CXX")
    if named:
        return shlex.split(named)
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return [name]
    raise PartitionError("no C++ compiler is on PATH; install g++, or set CXX to one")
