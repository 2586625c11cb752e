"""Loading partitioners that somebody else wrote: Python files and C++ libraries."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from compiler.backends import list_partitioners, unregister
from compiler.errors import BatonError, PartitionError


def include_dir() -> Path:
    """Folder of the C++ headers, for `-I`: `baton/partitioner.h` lies in it."""
    return Path(__file__).parent / "include"


def load(path: str | os.PathLike[str]) -> list[str]:
    """Load a file that registers partitioners.

    Its code runs in this process: load only what you trust. If it fails, none of its partitioners
    stays registered.

    Parameters
    ----------
    path : str or path
        A `.py`, which calls `compiler.partition.register` when it is run, or a `.so` built with
        `baton/partitioner.h`.

    Returns
    -------
    list of str
        The partitioners that are registered now and were not before, sorted.

    Raises
    ------
    PartitionError
        The file does not exist, is of neither kind, or fails; names the file, of a Python file
        also the line, and what was raised.
    """
    file = Path(path).expanduser()
    if file.suffix not in (".py", ".so"):
        raise PartitionError(f"{file} is neither a .py nor a .so; give the path of a partitioner")
    if not file.is_file():
        raise PartitionError(
            f"{file} does not exist or is not a file; give the path of a .py or .so"
        )
    before = set(list_partitioners())
    try:
        if file.suffix == ".py":
            _run(file)
        else:
            from compiler.partition.cpp_library import load_cpp

            load_cpp(file)
    except BaseException:
        for name in set(list_partitioners()) - before:
            unregister(name)
        raise
    return sorted(set(list_partitioners()) - before)


def _run(file: Path) -> None:
    name = f"baton_plugin_{file.stem}_{abs(hash(file.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PartitionError(f"the plugin {file} is not a Python file; give the path of a .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BatonError as error:
        raise PartitionError(f"the plugin {file}{_line(error, file)}: {error}") from error
    except Exception as error:
        raise PartitionError(
            f"the plugin {file}{_line(error, file)} raised {type(error).__name__}: {error}"
        ) from error


def _line(error: Exception, file: Path) -> str:
    """ ", line 3": the last line of the plugin itself on the way to the exception."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    found = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            found = trace.tb_lineno
        trace = trace.tb_next
    return f", line {found}" if found else ""
