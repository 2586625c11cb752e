"""`CachedOp`: a traced symbol, compiled once per signature; `DynamicOp` compiles it in pieces."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from compiler.errors import ArrayError, BatonError, BlockArgumentError, BlockError
from compiler.mxnet.symbol.dynamic_pieces import Piece, cut_pieces, run_pieces
from compiler.mxnet.symbol.symbol import Symbol

from ..array.engine import tensor_of
from ..array.ndarray import ndarray
from ..array.program import Flags, Program
from ..array.value import Value, parameter_epoch
from ..array.wrap import from_host, wrap
from .parameter import Parameter

CHANGES_BEFORE_INPUT = 2
"""A parameter that has changed more often after compilation is no longer compiled in."""


class Signature(NamedTuple):
    """Key of a compiled program."""

    types: tuple[tuple[tuple[int, ...], str], ...]
    device: Any


class CacheInfo(NamedTuple):
    """State of a cached operator."""

    hits: int
    misses: int
    maxsize: int
    currsize: int
    signatures: tuple[Signature, ...]


@dataclass
class _Entry:
    """A program, the parameter values in it, and the count of changes at which they held."""

    program: Program
    inside: list[tuple[str, ndarray, Value]]
    outside: list[ndarray]
    epoch: int


class CachedOp:
    """A symbol that is called on arrays.

    `data_names`: the variables that calls give, in order; the symbol need not read all of them.
    `params`: the other variables. `capacity`: programs kept; the one used longest ago goes. With
    `static_shape` it is 1. Raises BlockError: `static_shape` without `static_alloc`. Raises
    BlockArgumentError: the symbol reads a variable that is neither data nor a parameter.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str],
        params: Mapping[str, Parameter],
        flags: Flags | None = None,
        capacity: int = 32,
    ) -> None:
        self.flags = flags or Flags()
        if self.flags.static_shape and not self.flags.static_alloc:
            raise BlockError("static_alloc must be True when static_shape is True")
        self.symbol = symbol
        self.data_names = list(data_names)
        read = set(symbol.list_inputs())
        missing = [name for name in symbol.list_inputs() if name not in {*data_names, *params}]
        if missing:
            raise BlockArgumentError(f"unknown input to the symbol: {missing[0]!r}")
        self._params = {name: param for name, param in params.items() if name in read}
        self._read = [name in read for name in self.data_names]
        self._reads_all = all(self._read)
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        self._capacity = 1 if self.flags.static_shape else capacity
        self._changes: dict[str, int] = {}
        self._lock = threading.RLock()
        self._hits = 0
        self._misses = 0

    def __call__(self, arrays: Sequence[ndarray]) -> list[ndarray]:
        """Run on arrays in the order of `data_names`.

        Raises ArrayError: the arrays do not fit the symbol or the parameters.
        Raises BlockError: a parameter has no value on the device.
        """
        values = [array._value for array in arrays]
        device = values[0].device
        key = (*[(value.shape, value.dtype) for value in values], device)
        entry = self._entries.get(key)
        if entry is None or entry.epoch != parameter_epoch[0]:
            entry = self._prepare(key, values)
        else:
            self._hits += 1
            if len(self._entries) > 1:
                with suppress(KeyError):  # another thread may have dropped it just now
                    self._entries.move_to_end(key)
        tensors = [
            value.tensor if value.tensor is not None else tensor_of(value) for value in values
        ]
        if not self._reads_all:
            tensors = [tensor for tensor, read in zip(tensors, self._read) if read]
        if entry.outside:
            tensors += [tensor_of(array._value) for array in entry.outside]
        program = entry.program
        return [
            wrap(Value(shape, dtype, device, tensor))
            for (shape, dtype), tensor in zip(program.outputs, program(tensors))
        ]

    def cache_info(self) -> CacheInfo:
        """Hits, misses, and the signatures that are compiled, the most recent last."""
        with self._lock:
            found = tuple(Signature(key[:-1], key[-1]) for key in self._entries)
            return CacheInfo(self._hits, self._misses, self._capacity, len(found), found)

    def library(self, index: int = -1) -> Any:
        """The compiled library of one signature, by default the most recent one."""
        with self._lock:
            return list(self._entries.values())[index].program.library

    def _prepare(self, key: Any, values: Sequence[Value]) -> _Entry:
        """The entry of a signature, compiled where it is missing or parameters have changed."""
        with self._lock:
            epoch = parameter_epoch[0]
            entry = self._entries.get(key)
            if entry is not None:
                changed = [name for name, array, value in entry.inside if array._value is not value]
                if not changed:
                    entry.epoch = epoch
                    return entry
                for name in changed:
                    self._changes[name] = self._changes.get(name, 0) + 1
            self._misses += 1
            entry = self._compile(values, epoch)
            self._entries[key] = entry
            self._entries.move_to_end(key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
            return entry

    def _compile(self, values: Sequence[Value], epoch: int) -> _Entry:
        device = values[0].device
        held = {name: param.data(device) for name, param in self._params.items()}
        outside = [n for n in held if self._changes.get(n, 0) > CHANGES_BEFORE_INPUT]
        inside = [(n, array, array._value) for n, array in held.items() if n not in outside]
        types = {
            name: (value.shape, value.dtype)
            for name, value, read in zip(self.data_names, values, self._read)
            if read
        }
        types |= {name: (held[name].shape, str(held[name].dtype)) for name in outside}
        params = {name: _host(value) for name, _, value in inside}
        try:
            program = Program(self.symbol, types, params, device, self.flags)
        except BlockError:
            raise
        except BatonError as error:
            shown = ", ".join(f"{n}: {dtype}{shape}" for n, (shape, dtype) in types.items())
            raise ArrayError(f"the block can't be compiled for {shown}: {error}") from error
        return _Entry(program, inside, [held[name] for name in outside], epoch)


class DynamicOp:
    """A symbol with dynamic operators, called as `CachedOp`; `parts` lie between them, in order."""

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str],
        params: Mapping[str, Parameter],
        flags: Flags,
    ) -> None:
        self.symbol, self.flags = symbol, flags
        self.data_names = list(data_names)
        self._pieces, self._results = cut_pieces(symbol, whole=flags.partition_if_dynamic)
        read = set(symbol.list_inputs())
        self._params = {name: param for name, param in params.items() if name in read}
        self._ops = [self._compiled(piece) for piece in self._pieces]

    @property
    def parts(self) -> list[CachedOp]:
        return [op for op in self._ops if op is not None]

    def _compiled(self, piece: Piece) -> CachedOp | None:
        if piece.symbol is None:
            return None
        given = [name for name in piece.inputs if name not in self._params]
        return CachedOp(piece.symbol, given, self._params, self.flags)

    def __call__(self, arrays: Sequence[ndarray]) -> list[ndarray]:
        """Run on arrays in the order of `data_names`; raises as `CachedOp` does."""
        device = arrays[0].device
        values: dict[str, Any] = {name: p.data(device) for name, p in self._params.items()}
        values |= dict(zip(self.data_names, arrays))
        run_pieces(
            self._pieces,
            values,
            self._run,
            lambda array: array._host(),
            lambda host: from_host(host, device),
        )
        return [values[name] for name in self._results]

    def _run(self, number: int, piece: Piece, arrays: Sequence[ndarray]) -> list[ndarray]:
        op = self._ops[number]
        assert op is not None
        data = [a for name, a in zip(piece.inputs, arrays) if name not in self._params]
        return op(data)

    def cache_info(self) -> CacheInfo:
        """Sums over all parts; the signatures are those of the parts, too."""
        found = [op.cache_info() for op in self.parts]
        hits, misses, most, kept = (sum(column) for column in list(zip(*found))[:4])
        signatures = tuple(each for info in found for each in info.signatures)
        return CacheInfo(hits, misses, most, kept, signatures)

    def library(self, index: int = -1) -> Any:
        """The library that the last part compiled at last; `parts` have the others."""
        return self.parts[-1].library(index)


def _host(value: Value) -> np.ndarray:
    tensor = tensor_of(value)
    return np.from_dlpack(tensor) if value.device.is_cpu else tensor.numpy()
