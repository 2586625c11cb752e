"""Shared libraries built with `baton/partitioner.h`, and the engines in them.

Those built with `mxnet/lib_api.h` have operators and graph passes too; `mxnet_requests` calls them.

Needs tvm-ffi alone, so that a process that only runs libraries can load the engines of their
subgraphs. A library of `baton/partitioner.h` exports functions of the tvm-ffi calling convention,
`__tvm_ffi_baton_<entry>`.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import compiler
from compiler.errors import PartitionError

from . import foreign, library_operators, mxnet_requests
from .elf import MAGIC, MalformedElfError, read_sections
from .library_operators import LibraryOperator
from .mxnet_requests import MxnetRequests

ABI_VERSION = 2
"""Required value of `BATON_ABI_VERSION` in the header."""


class PartitionerLibrary:
    """A library that stays loaded as long as the process.

    `described`: per partitioner its name, whether it checks options, whether it compiles, and per
    strategy its name, its operator, and which of its three callbacks it has. `passes`: names of
    graph passes, which `mxnet_pass` runs by their position.
    Raises PartitionError: the file is not a library, has an unresolved symbol, was built without
    the header or with another version of it, refuses this version of Baton, registers nothing, or
    has changed since this process loaded it.
    """

    def __init__(self, file: Path) -> None:
        import tvm_ffi

        self._file = file
        _check_elf(file)
        _check_unchanged(file)
        path = str(file.resolve())
        try:
            # All symbols now: one that is missing would end the process when it is first called.
            symbols = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            self._module = tvm_ffi.load_module(path)
        except (OSError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise PartitionError(f"{file} can't be loaded: {reason}") from error
        if hasattr(symbols, "_opVersion"):
            raise PartitionError(
                f"{file} was built with MXNet's own lib_api.h; build its sources again with `baton "
                "partitioner build`, which has one of the same names"
            )
        self.mxnet: MxnetRequests | None = None
        self.described: Sequence[Any] = ()
        self.passes: list[str] = []
        self.operators: list[LibraryOperator] = []
        if hasattr(symbols, "baton_mxnet_call"):
            self._open_mxnet(symbols)
        else:
            self._open()

    def _open(self) -> None:
        _check_version(self._file, "baton/partitioner.h", self.call("abi_version"), ABI_VERSION)
        self._check_refusal(str(self.call("initialize", _version_number())))
        self.described = self.call("describe")
        if not len(self.described):
            raise PartitionError(
                f"{self._file} registers no partitioner; use BATON_REGISTER_PARTITIONER in one of "
                "its files"
            )

    def _open_mxnet(self, symbols: ctypes.CDLL) -> None:
        version = symbols.baton_mxnet_abi_version()
        _check_version(self._file, "mxnet/lib_api.h", version, mxnet_requests.ABI_VERSION)
        if not hasattr(symbols, "initialize"):
            raise PartitionError(
                f"{self._file} does not define `MXReturnValue initialize(int version)`, as every "
                "library of mxnet/lib_api.h must"
            )
        self.mxnet = MxnetRequests(symbols)
        try:
            operators, self.passes, partitioners = self.mxnet("initialize")
        except RuntimeError as error:
            self._check_refusal(str(error))
        self.operators = [
            LibraryOperator(name, bool(subgraphs), bool(state), self._file, self, number)
            for number, (name, subgraphs, state) in enumerate(operators)
        ]
        self.described = [(name, False, False, strategies) for name, strategies in partitioners]

    def _check_refusal(self, reason: str) -> None:
        if reason:
            raise PartitionError(f"{self._file} refuses Baton {compiler.__version__}: {reason}")

    @property
    def identity(self) -> str:
        """The names of its partitioners, which no other library has, wherever its file lies."""
        return ", ".join(sorted(str(name) for name, *_ in self.described))

    def call(self, entry: str, *arguments: Any) -> Any:
        """Call a function that the header baton/partitioner.h defines."""
        try:
            function = self._module.get_function(f"baton_{entry}")
        except (AttributeError, RuntimeError):
            raise PartitionError(
                f"{self._file} has no function baton_{entry}; a partitioner library is built with "
                "the header baton/partitioner.h: baton partitioner build"
            ) from None
        return function(*arguments)

    def register_engines(self) -> list[str]:
        """Make its engines and operators known to libraries that run them.

        Returns the names of the partitioners that have an engine, and of the operators.
        """
        names = {
            str(name): partial(self._engine, number)
            for number, (name, _checks, compiles, _strategies) in enumerate(self.described)
            if compiles
        }
        engines = {operator.runtime: operator.load for operator in self.operators}
        engines |= {each.claims: each.load_claimed for each in self.operators if each.claims}
        engines |= {runtime_name(name): load for name, load in names.items()}
        foreign.register_engines(engines, str(self._file.resolve()))
        library_operators.register(self.operators)
        return [*(operator.name for operator in self.operators), *names]

    def _engine(self, number: int, code: bytes) -> foreign.Engine:
        header, content = foreign.split_header(code)
        engine = self.call("engine", number, content, header["attrs"], header["options"])
        return lambda inputs, outputs: engine(list(inputs), list(outputs))


def pack_code(content: bytes, attrs: Mapping[str, str], options: Mapping[str, str]) -> bytes:
    """Input of an engine: the code, and its partitioner's description of the subgraph."""
    return foreign.with_header({"attrs": dict(attrs), "options": dict(options)}, content)


def runtime_name(partitioner: str) -> str:
    """Name of the runtime that a partitioner's engines are."""
    return f"partitioner {partitioner}"


def load_engines(path: str | os.PathLike[str]) -> list[str]:
    """Load the engines of a partitioner library, for libraries whose subgraphs run in them.

    `compiler.mxnet.library.load` does the same. This function needs TVM's runtime alone.

    Parameters
    ----------
    path : str or path
        A `.so` built with `baton/partitioner.h`. Its code runs in this process.

    Returns
    -------
    list of str
        The partitioners that have an engine, and the operators.

    Raises
    ------
    PartitionError
        See `PartitionerLibrary`; or there is neither.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise PartitionError(f"{file} does not exist or is not a file; give the path of a .so")
    names = PartitionerLibrary(file).register_engines()
    if not names:
        raise PartitionError(
            f"{file} has no engine: none of its partitioners has a compile callback"
        )
    return names


_seen: dict[str, tuple[int, int, int]] = {}


def _check_unchanged(file: Path) -> None:
    """Refuse a file that was loaded before and is another one now: the loader has the old one."""
    status = file.stat()
    now = (status.st_ino, status.st_size, status.st_mtime_ns)
    if _seen.setdefault(str(file.resolve()), now) != now:
        raise PartitionError(
            f"{file} has changed since this process loaded it, and a shared library can't be "
            "loaded anew: start another process, or give the new one another name"
        )


def _check_elf(file: Path) -> None:
    """Refuse what the dynamic loader would crash on: other formats, and files cut short."""
    with file.open("rb") as stream:
        if stream.read(4) != MAGIC:
            raise PartitionError(
                f"{file} is not a shared library: it does not begin like an ELF file"
            )
        stream.seek(0)
        try:
            read_sections(stream)
        except MalformedElfError as error:
            raise PartitionError(f"{file} is not a complete shared library: {error}") from error


def _check_version(file: Path, header: str, version: int, wanted: int) -> None:
    if version != wanted:
        raise PartitionError(
            f"{file} was built with version {version} of {header}; this Baton has "
            f"version {wanted}: build it again with `baton partitioner build`"
        )


def _version_number() -> int:
    """MXNet's form of the version: 10203 is 1.2.3."""
    release = re.match(r"\d+(\.\d+)*", compiler.__version__)
    parts = [int(part) for part in release[0].split(".")] if release else []
    major, minor, patch = [*parts, 0, 0, 0][:3]
    return 10000 * major + 100 * minor + patch
