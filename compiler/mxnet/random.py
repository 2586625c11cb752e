"""`np.random`: random arrays, made on the host at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as _np

from .array.ndarray import ndarray
from .array.wrap import dtype_name, from_host
from .device import Device

_STATE = {"generator": _np.random.default_rng()}
_LOCK = threading.Lock()


def generator() -> _np.random.Generator:
    """The generator that all random numbers come from."""
    return _STATE["generator"]


def seed(seed: int) -> None:
    """Start the sequence of random numbers anew."""
    with _LOCK:
        _STATE["generator"] = _np.random.default_rng(seed)


def _draw(method: str, size: Any, dtype: Any, device: Device | None, *args: Any) -> ndarray:
    with _LOCK:
        drawn = getattr(_STATE["generator"], method)(*args, size=size)
    return from_host(_np.asarray(drawn).astype(dtype_name(dtype)), device)


# `shape` and `ctx` are what MXNet 1.x calls `size` and `device`.


def _either(size: Any, shape: Any) -> Any:
    return shape if size is None else size


def uniform(
    low: float = 0.0, high: float = 1.0, size: Any = None, dtype: Any = None,
    device: Device | None = None, shape: Any = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """Evenly distributed in [low, high)."""
    return _draw("uniform", _either(size, shape), dtype, device or ctx, low, high)


def normal(
    loc: float = 0.0, scale: float = 1.0, size: Any = None, dtype: Any = None,
    device: Device | None = None, shape: Any = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """Normally distributed."""
    return _draw("normal", _either(size, shape), dtype, device or ctx, loc, scale)


def randint(
    low: int, high: int | None = None, size: Any = None, dtype: Any = "int64",
    device: Device | None = None, shape: Any = None, ctx: Device | None = None,
) -> ndarray:  # fmt: skip
    """Integers in [low, high), or in [0, low)."""
    bounds = (0, low) if high is None else (low, high)
    return _draw("integers", _either(size, shape), dtype, device or ctx, *bounds)


def rand(*size: int) -> ndarray:
    """Evenly distributed in [0, 1), of a shape."""
    return uniform(size=size)


def randn(*size: int) -> ndarray:
    """Normally distributed, of a shape."""
    return normal(size=size)
