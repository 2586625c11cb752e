"""`nd`: operators by MXNet's own names, for code written against `mx.nd` and `hybrid_forward`'s F.

    nd.FullyConnected(x, weight, bias, num_hidden=4)
    nd.broadcast_add(a, b)

Every operator that the importer knows, and every one of a library that is loaded, can be called.
Arrays come first or by the operator's names of its inputs; what is left are its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import np, npx, random, sparse
from .array import creation
from .array.files import load, save
from .array.ndarray import ndarray, waitall
from .array.operator_function import operator_function
from .device import Device


class _Contrib:
    """Control flow, and operators whose names start with `_contrib_`."""

    boolean_mask = staticmethod(npx.boolean_mask)
    cond = staticmethod(npx.cond)
    foreach = staticmethod(npx.foreach)
    while_loop = staticmethod(npx.while_loop)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return operator_function(f"_contrib_{name}")


contrib = _Contrib()
NDArray = ndarray
concatenate, linspace = np.concatenate, creation.linspace

# As in MXNet 1.x, the device comes before the dtype.


def array(source: Any, ctx: Device | None = None, dtype: Any = None) -> NDArray:
    """An array of a list or an array; of lists, float32 by default."""
    plain = dtype is None and not hasattr(source, "dtype")
    return creation.array(source, "float32" if plain else dtype, ctx)


def _filled(function: Callable[..., NDArray]) -> Callable[..., NDArray]:
    def call(shape: Any, ctx: Device | None = None, dtype: Any = None) -> NDArray:
        return function(shape, dtype, ctx=ctx)

    call.__doc__ = function.__doc__
    return call


zeros, ones = _filled(creation.zeros), _filled(creation.ones)
empty = zeros


def full(shape: Any, val: float, ctx: Device | None = None, dtype: Any = None) -> NDArray:
    """One number everywhere."""
    return creation.full(shape, val, dtype, ctx=ctx)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    ctx: Device | None = None,
    dtype: Any = None,
) -> NDArray:
    """Evenly spaced numbers, each several times if `repeat` says so."""
    found = creation.arange(start, stop, step, dtype, ctx=ctx)
    return found if repeat == 1 else np.repeat(found, repeat)


def __getattr__(name: str) -> Callable[..., Any]:
    if name in ("random_normal", "random_randint", "random_uniform"):
        return getattr(random, name.removeprefix("random_"))
    return operator_function(name)
