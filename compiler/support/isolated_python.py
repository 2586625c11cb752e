"""The command of a new Python process that imports this Baton, and nothing of the current folder.

`python -m` and `python -c` look for modules in the current folder first, which may be anybody's:
a folder of models with a file `random.py` in it. `-P` forbids that from Python 3.11 on only.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
# `sys` is part of the interpreter: this imports nothing from anywhere.
_BEFORE = "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "


def running(statements: str, *arguments: str) -> list[str]:
    """The command of a process that executes statements, with the arguments from sys.argv[1] on."""
    return [sys.executable, "-c", _BEFORE + statements, _ROOT, *arguments]


def isolated_module_argv(module: str) -> list[str]:
    """The command of a process that executes a module as `__main__`."""
    return running("import runpy; runpy.run_module(sys.argv[1], run_name='__main__')", module)
