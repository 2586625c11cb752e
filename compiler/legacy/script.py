"""Running a script of an older TVM unchanged."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .switch import install


def run_script(path: str | Path, arguments: Sequence[str] = ()) -> None:
    """Run a Python script as `__main__`, with the old names switched on.

    Parameters
    ----------
    path : str or Path
        The script. Its folder comes first on `sys.path`, as under `python script.py`.
    arguments : sequence of str
        What the script finds in `sys.argv[1:]`.

    Raises
    ------
    InputError
        There is no such file. Whatever the script itself raises comes through.
    """
    script = Path(path)
    if not script.is_file():
        raise InputError(f"{script}: no such script")
    install(everything=True)
    before = sys.argv[:], sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before
