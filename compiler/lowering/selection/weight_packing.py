"""Pack weights: with numpy if they are known at build time, otherwise with operators."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...ir.constants import SHARED_DTYPES, array_of, constant
from ...support.scoped_context import scoped_value

_LARGE = 1 << 18
"""Bytes of a weight that takes longer to pack than to hand to another thread."""


class _Lazy:
    """A Relax expression with what packing functions read of an array."""

    def __init__(self, builder: relax.BlockBuilder, expr: relax.Expr) -> None:
        self._builder = builder
        self.expr = expr

    def astype(self, dtype: str) -> _Lazy:
        if str(self.expr.ty.dtype) == dtype:
            return self
        call = relax.op.astype(self.expr, dtype)
        return _Lazy(self._builder, self._builder.emit(call))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(d) for d in self.expr.ty.shape.values)


class RelaxOps:
    """numpy's `pad`, `reshape`, `transpose`, `flip` and `concatenate` as Relax operators."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder

    def _emit(self, call: relax.Call) -> _Lazy:
        return _Lazy(self._builder, self._builder.emit(call))

    def pad(self, array: _Lazy, widths: Sequence[tuple[int, int]]) -> _Lazy:
        flat = [int(side) for pair in widths for side in pair]
        return self._emit(relax.op.nn.pad(array.expr, flat))

    def reshape(self, array: _Lazy, shape: Sequence[int]) -> _Lazy:
        return self._emit(relax.op.reshape(array.expr, tuple(shape)))

    def transpose(self, array: _Lazy, axes: Sequence[int]) -> _Lazy:
        return self._emit(relax.op.permute_dims(array.expr, list(axes)))

    def flip(self, array: _Lazy, axes: Sequence[int]) -> _Lazy:
        for axis in axes:
            array = self._emit(relax.op.flip(array.expr, axis))
        return array

    def concatenate(self, arrays: Sequence[_Lazy], axis: int) -> _Lazy:
        return self._emit(relax.op.concat([array.expr for array in arrays], axis))


class _Background:
    """Packs weights in other threads; the first of several packed alike is packed immediately."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._known: dict[Hashable, tuple[tuple[int, ...], np.dtype]] = {}
        self._jobs: list[Future[None]] = []

    def packed(
        self, array: np.ndarray, function: Callable[[Any, Any], Any], alike: Hashable
    ) -> relax.Expr:
        """A constant, which is complete after `wait`."""
        key = (alike, array.shape, str(array.dtype))
        if key not in self._known:
            first = np.asarray(function(np, array))
            self._known[key] = first.shape, first.dtype
            return constant(first)
        shape, dtype = self._known[key]
        tensor = tvm.runtime.empty(shape, str(dtype))
        self._jobs.append(self._pool.submit(_fill, tensor, function, array))
        return relax.const(tensor)

    def wait(self) -> None:
        for job in self._jobs:
            job.result()


def _fill(tensor: Any, function: Callable[[Any, Any], Any], array: np.ndarray) -> None:
    packed = function(np, array)
    if packed.shape != tuple(tensor.shape):
        raise ValueError(f"weights that are packed alike become {packed.shape} and {tensor.shape}")
    np.from_dlpack(tensor)[...] = packed


_BACKGROUND: ContextVar[_Background | None] = ContextVar("background", default=None)


@contextmanager
def packing_in_background() -> Iterator[None]:
    """Pack large weights on all cores until the block ends; they must not be read in it."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        background = _Background(pool)
        with scoped_value(_BACKGROUND, background):
            yield
        background.wait()


def pack(
    builder: relax.BlockBuilder,
    weight: relax.Expr,
    function: Callable[[Any, Any], Any],
    alike: Hashable = None,
) -> relax.Expr:
    """Apply `function(ops, array)` to a weight: to a constant at build time, else per inference.

    `function` uses `ops.pad`, `ops.reshape`, `ops.transpose`, `ops.flip`, `ops.concatenate`,
    `array.shape` and `array.astype` alone. Functions of equal `alike` make arrays of one shape and
    type of arrays of one shape and type, whatever is in them; without it nothing is packed in the
    background.
    """
    known = array_of(weight)
    if known is not None:
        background = _BACKGROUND.get()
        is_plain = str(known.dtype) in SHARED_DTYPES and known.nbytes >= _LARGE
        if background is not None and alike is not None and is_plain:
            return background.packed(known, function, alike)
        return constant(function(np, known))
    return function(RelaxOps(builder), _Lazy(builder, weight)).expr
