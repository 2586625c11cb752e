"""Python files that register partitioners."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from compiler.errors import BatonError, PartitionError


def load_plugins(paths: Iterable[Path]) -> None:
    """Run Python files that the user names; they call `compiler.partition.register`.

    Raises
    ------
    PartitionError
        A file can't be read or raises; names the file, the line and the exception.
    """
    for number, path in enumerate(paths):
        name = f"baton_plugin_{number}_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise PartitionError(f"the plugin {path} is no Python file; give the path of a .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickling look their module up
        try:
            spec.loader.exec_module(module)
        except BatonError:
            raise
        except Exception as error:
            raise PartitionError(
                f"the plugin {path}{_line(error, path)} raised {type(error).__name__}: {error}"
            ) from error


def _line(error: Exception, path: Path) -> str:
    """ ", line 3": the last line of the plugin itself on the way to the exception."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    found = 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = trace.tb_lineno
        trace = trace.tb_next
    return f", line {found}" if found else ""
