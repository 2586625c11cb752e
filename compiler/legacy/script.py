"""Running a script of an older TVM or of MXNet unchanged."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError
from .diagnostics import TVM_ERROR
from .import_hook import use_names_of_mxnet
from .installation import install
from .v0_6 import is_of_the_era


def run_script(path: str | Path, arguments: Sequence[str] = (), era: str | None = None) -> None:
    """Run a Python script as `__main__`, with the old names of TVM on.

    `import mxnet` imports `compiler.mxnet`.

    `path`: the script. Its folder comes first on `sys.path`, as under `python script.py`.
    `arguments`: what the script finds in `sys.argv[1:]`. `era`: the version of TVM that it was
    written for; by default what its names and imports say.
    Raises InputError: there is no such file, or no such era. Whatever the script itself raises
    comes through.
    """
    script = Path(path)
    if not script.is_file():
        raise InputError(f"{script}: no such script")
    if era is None:
        era = "0.6" if is_of_the_era(script.read_text(errors="replace")) else "0.19"
    with _as_main(str(script), arguments, str(script.resolve().parent), era):
        runpy.run_path(str(script), run_name="__main__")


def run_module(name: str, arguments: Sequence[str] = (), era: str | None = None) -> None:
    """Run a module as `python -m` does, such as tvm.driver.tvmc, with the old names of TVM on.

    `name`: of the module, found in the current folder first. `arguments`, `era`: as for
    `run_script`; the version is 0.19 by default.
    Raises ImportError: there is no such module. What the module itself raises comes through.
    """
    with _as_main(name, arguments, os.getcwd(), era or "0.19"):
        runpy.run_module(name, run_name="__main__", alter_sys=True)


@contextmanager
def _as_main(program: str, arguments: Sequence[str], folder: str, era: str) -> Iterator[None]:
    """The old names, and the arguments and search path of a program."""
    install(everything=True, era=era)
    use_names_of_mxnet(True)
    before = sys.argv[:], sys.path[:]
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)
    try:
        yield
    except TVM_ERROR as error:
        # TVM's hook for exceptions takes it for printed already, and prints nothing of it.
        raise SystemExit(f"{type(error).__module__}.DiagnosticError: {error}") from error
    finally:
        sys.argv, sys.path[:] = before
