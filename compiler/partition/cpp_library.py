"""Partitioners of a C++ library: the Python side of `baton/partitioner.h`.

The library exports functions of the tvm-ffi calling convention, `__tvm_ffi_baton_<entry>`. Graphs
travel as JSON text, options as maps of strings, parameter values as tensors that share the
memory of the module's own.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import compiler
from compiler.backends import (
    AcceptSubgraph,
    MakeSelector,
    Options,
    Partitioner,
    Strategy,
    SupportedOps,
    register,
)
from compiler.errors import PartitionError

from .selector import Selector

ABI_VERSION = 1
"""What `BATON_ABI_VERSION` of the header must be."""

_ELF_MAGIC = b"\x7fELF"


def load_cpp(file: Path) -> None:
    """Register the partitioners of a shared library. It stays loaded as long as the process.

    Raises
    ------
    PartitionError
        The file is not a library, has an unresolved symbol, was built without the header or
        with another version of it, refuses this version of Baton, registers nothing, or
        registers something that makes no sense.
    """
    entries = _Entries(file)
    version = entries.call("abi_version")
    if version != ABI_VERSION:
        raise PartitionError(
            f"{file} was built with version {version} of baton/partitioner.h; this Baton has "
            f"version {ABI_VERSION}: build it again with the header under `baton include-dir`"
        )
    reason = str(entries.call("initialize", _version_number()))
    if reason:
        raise PartitionError(f"{file} refuses Baton {compiler.__version__}: {reason}")
    described = entries.call("describe")
    if not len(described):
        raise PartitionError(
            f"{file} registers no partitioner; use BATON_REGISTER_PARTITIONER in one of its files"
        )
    for number, (name, checks, strategies) in enumerate(described):
        made = _partitioner(entries, number, str(name), bool(checks), strategies)
        register(made.name, made.strategies, check_options=made.check_options)


class _Entries:
    """The functions that a library exports for Baton."""

    def __init__(self, file: Path) -> None:
        import tvm_ffi

        self._file = file
        _check_elf(file)
        path = str(file.resolve())
        try:
            # All symbols now: one that is missing would end the process when it is first called.
            ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            self._module = tvm_ffi.load_module(path)
        except (OSError, RuntimeError) as error:
            raise PartitionError(f"{file} can't be loaded: {_first_line(error)}") from error

    def call(self, entry: str, *arguments: Any) -> Any:
        try:
            function = self._module.get_function(f"baton_{entry}")
        except (AttributeError, RuntimeError) as error:
            raise PartitionError(
                f"{self._file} has no function baton_{entry}; a partitioner library is built with "
                "the header baton/partitioner.h under `baton include-dir`"
            ) from error
        return function(*arguments)


def _check_elf(file: Path) -> None:
    """Refuse what the dynamic loader would crash on: other formats, and files cut short."""
    from compiler.runtime.elf import MalformedElfError, read_sections

    with file.open("rb") as stream:
        if stream.read(4) != _ELF_MAGIC:
            raise PartitionError(
                f"{file} is not a shared library: it does not begin like an ELF file"
            )
        stream.seek(0)
        try:
            read_sections(stream)
        except MalformedElfError as error:
            raise PartitionError(f"{file} is not a complete shared library: {error}") from error


def _partitioner(
    entries: _Entries, number: int, name: str, checks: bool, strategies: Sequence[Any]
) -> Partitioner:
    def check_options(options: Options) -> str | None:
        return str(entries.call("check_options", number, options))

    made = []
    for index, (title, subgraph_op, marks, selects, reviews) in enumerate(strategies):
        made.append(
            Strategy(
                str(title),
                _supported_ops(entries, number, index) if marks else None,
                _accept_subgraph(entries, number, index) if reviews else None,
                str(subgraph_op),
                _make_selector(entries, number, index) if selects else None,
            )
        )
    return Partitioner(name, tuple(made), check_options if checks else None)


def _supported_ops(entries: _Entries, partitioner: int, strategy: int) -> SupportedOps:
    def supported_ops(graph_json: str, ids: list[int], options: Options) -> list[int]:
        return list(entries.call("supported_ops", partitioner, strategy, graph_json, options))

    return supported_ops


def _accept_subgraph(entries: _Entries, partitioner: int, strategy: int) -> AcceptSubgraph:
    def accept_subgraph(
        graph_json: str,
        subgraph_id: int,
        options: Options,
        attrs: dict[str, str],
        args: Mapping[str, np.ndarray],
        aux: Mapping[str, np.ndarray],
    ) -> bool:
        read = [node["attrs"].get("argName", "") for node in json.loads(graph_json)["nodes"]]
        # The tensors point into these arrays, which therefore live until the call returns.
        values, auxiliary = (_contiguous({n: m[n] for n in read if n in m}) for m in (args, aux))
        accepted, found = entries.call(
            "review",
            partitioner,
            strategy,
            graph_json,
            subgraph_id,
            options,
            {name: _shared(value) for name, value in values.items()},
            {name: _shared(value) for name, value in auxiliary.items()},
        )
        attrs.update((str(key), str(value)) for key, value in found.items())
        return bool(accepted)

    return accept_subgraph


def _make_selector(entries: _Entries, partitioner: int, strategy: int) -> MakeSelector:
    def make_selector(graph_json: str, options: Options) -> Selector:
        return _CppSelector(entries.call("selector", partitioner, strategy, graph_json, options))

    return make_selector


class _CppSelector(Selector):
    """A selector whose methods are functions of the library."""

    def __init__(self, methods: Sequence[Any]) -> None:
        self._select, self._input, self._output, self._filter, self._reset = methods

    def select(self, node: int) -> bool:
        return bool(self._select(node))

    def select_input(self, node: int, input_node: int) -> bool:
        return bool(self._input(node, input_node))

    def select_output(self, node: int, output_node: int) -> bool:
        return bool(self._output(node, output_node))

    def filter(self, candidates: list[int]) -> list[int]:
        return [int(node) for node in self._filter(candidates)]

    def reset(self) -> None:
        self._reset()


def _contiguous(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values of types that DLPack knows, copied only where their layout is another."""
    return {
        name: np.asarray(value, order="C")
        for name, value in values.items()
        if value.dtype.kind in "biuf"
    }


def _shared(value: np.ndarray) -> Any:
    """A tensor on the array's memory. The array must outlive it.

    The array is read-only, which this version of DLPack can't say; the header hands out nothing
    but pointers to const.
    """
    import tvm_ffi

    if not value.size:
        return tvm_ffi.from_dlpack(np.empty(value.shape, value.dtype))
    memory = (ctypes.c_char * value.nbytes).from_address(value.ctypes.data)
    alias = np.frombuffer(memoryview(memory), value.dtype, value.size).reshape(value.shape)
    return tvm_ffi.from_dlpack(alias)


def _version_number() -> int:
    parts = [int(part) for part in compiler.__version__.split(".")[:3]]
    return 10000 * parts[0] + 100 * parts[1] + parts[2]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
