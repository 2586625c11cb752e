"""`sym.zeros`, `sym.maximum` and others: functions that choose an operator by their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .symbol import Symbol, binary, operator

__all__ = ["arange", "full", "maximum", "minimum", "ones", "zeros"]


def zeros(shape: int | Sequence[int], dtype: str = "float32", **kwargs: Any) -> Symbol:
    """A symbol of zeros."""
    return operator("_zeros")(shape=_tuple(shape), dtype=dtype, **kwargs)


def ones(shape: int | Sequence[int], dtype: str = "float32", **kwargs: Any) -> Symbol:
    """A symbol of ones."""
    return operator("_ones")(shape=_tuple(shape), dtype=dtype, **kwargs)


def full(shape: int | Sequence[int], val: float, dtype: str = "float32", **kwargs: Any) -> Symbol:
    """A symbol of one number."""
    return operator("_full")(shape=_tuple(shape), value=float(val), dtype=dtype, **kwargs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    name: str | None = None,
    dtype: str = "float32",
) -> Symbol:
    """A symbol of `start`, `start + step`, ... below `stop`, each `repeat` times."""
    first, last = (0, start) if stop is None else (start, stop)
    given = {"start": first, "stop": last, "step": step, "repeat": repeat, "dtype": dtype}
    return operator("_arange")(name=name, **given)


def maximum(left: Any, right: Any) -> Symbol:
    """The larger one of two symbols, or of a symbol and a number, by element."""
    return binary("maximum", left, right)


def minimum(left: Any, right: Any) -> Symbol:
    """The smaller one of two symbols, or of a symbol and a number, by element."""
    return binary("minimum", left, right)


def _tuple(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
