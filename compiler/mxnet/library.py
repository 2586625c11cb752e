"""`mx.library`: load plug-ins (Python files, C++ libraries) and compile them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from compiler.backends import GraphPass, Partitioner, registered, restore, unregister
from compiler.errors import BatonError, CompilerOutputError, PartitionError
from compiler.support.cxx import cxx_command, include_dir


class Loaded(list[str]):
    """Sorted names of the partitioners that a file registered, with its operators and passes.

    `operators` are those of a library of MXNet's interface, `passes` backends of
    `Symbol.optimize_for`.
    """

    def __init__(
        self, partitioners: Iterable[str], operators: Iterable[str], passes: Iterable[str]
    ) -> None:
        super().__init__(sorted(partitioners))
        self.operators = sorted(operators)
        self.passes = sorted(passes)


def load(path: str | os.PathLike[str], verbose: bool = True) -> Loaded:
    """Load a file that registers partitioners, graph passes or operators.

    Its code runs in this process: load only what you trust. Loading a file again replaces its
    earlier registrations. A failed load changes nothing.

    Parameters
    ----------
    path : str or path
        A `.py`, which calls `compiler.partition.register` when it is run, or a `.so` built with
        `baton/partitioner.h`, or with `mxnet/lib_api.h`, the header of MXNet's interface.
    verbose : bool
        Print the registered names, as MXNet does.

    Returns
    -------
    Loaded
        A list of the partitioners that it registered, which names operators and passes too.

    Raises
    ------
    PartitionError
        The file does not exist, has another suffix, or raises; the message has the file, for a
        Python file also the line, and the original error.
    """
    file = Path(path).expanduser()
    if file.suffix not in (".py", ".so"):
        raise PartitionError(f"{file} is neither a .py nor a .so; give the path of a partitioner")
    if not file.is_file():
        raise PartitionError(
            f"{file} does not exist or is not a file; give the path of a .py or .so"
        )
    before = registered()
    for name, made in _brought.get(file.resolve(), {}).items():
        if before.get(name) is made:
            unregister(name)
    operators: list[str] = []
    try:
        if file.suffix == ".py":
            _run(file)
        else:
            from compiler.partition.cpp_library import load_cpp

            operators = [operator.name for operator in load_cpp(file).operators]
    except BaseException:
        restore(before)
        raise
    brought = {name: made for name, made in registered().items() if before.get(name) is not made}
    _brought[file.resolve()] = brought
    passes = [name for name, made in brought.items() if isinstance(made, GraphPass)]
    found = Loaded(brought.keys() - set(passes), operators, passes)
    if verbose:
        kinds = ("operator", found.operators), ("partitioner", found), ("pass", found.passes)
        for kind, names in kinds:
            for name in names:
                print(f"Found {kind} {name!r} in {file}")
    return found


_brought: dict[Path, dict[str, Partitioner | GraphPass]] = {}
"""Registrations of each file, as of its last load."""


def build(
    sources: Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    flags: Iterable[str] = ("-O2",),
) -> Path:
    """Compile C++ sources to a partitioner library, as `baton partitioner build` does.

    Parameters
    ----------
    sources : paths
        C++ files that include `baton/partitioner.h` or `mxnet/lib_api.h`.
    output : str or path
        The `.so`, written atomically.
    flags : str
        Further compiler flags.

    Returns
    -------
    Path
        `output`.

    Raises
    ------
    PartitionError
        There is no C++ compiler ($CXX names one), a source does not exist, or it does not compile
        (`CompilerOutputError`).
    """
    from compiler.support.atomic_file import atomic_write_path

    files, result = [Path(source) for source in sources], Path(output)
    for file in files:
        if not file.is_file():
            raise PartitionError(f"{file} does not exist or is not a file; give C++ sources")
    with atomic_write_path(result) as draft:
        command = [*cxx_command(), *compiler_flags(), *flags, *map(str, files), "-o", str(draft)]
        done = subprocess.run(
            [*command, *linker_flags()], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CompilerOutputError(
                f"{command[0]} does not compile {files[0]}:\n{done.stderr.strip()}"
            )
    return result


def compiler_flags() -> list[str]:
    """Flags that a partitioner library is compiled with."""
    from tvm_ffi import libinfo

    # The folder of 1.7 has the header by the name that sources of MXNet 1.7 include.
    own = include_dir(), include_dir() / "mxnet_1_7"
    folders = (*own, libinfo.find_include_path(), libinfo.find_dlpack_include_path())
    shared = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-shared"]
    return [*shared, *(f"-I{folder}" for folder in folders)]


def linker_flags() -> list[str]:
    """Linker flags of a partitioner library."""
    from tvm_ffi import libinfo

    return [f"-L{Path(libinfo.find_libtvm_ffi()).parent}", "-ltvm_ffi"]


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
