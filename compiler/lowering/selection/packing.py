"""Rearranges weights: with numpy when they are known at build time, else with operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from ...graph.constants import array_of, constant


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
    """numpy's `pad`, `reshape` and `transpose` as Relax operators."""

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


def pack(
    builder: relax.BlockBuilder, weight: relax.Expr, function: Callable[[Any, Any], Any]
) -> relax.Expr:
    """Apply `function(ops, array)` to a weight.

    Parameters
    ----------
    weight
        A constant is packed now; anything else is packed by the library each time it runs.
    function
        Uses `ops.pad`, `ops.reshape`, `ops.transpose`, `array.shape` and `array.astype` alone.
    """
    known = array_of(weight)
    if known is not None:
        return constant(function(np, known))
    return function(RelaxOps(builder), _Lazy(builder, weight)).expr
