"""`np.random`: random arrays, made on the host at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as _np

from .device import Device
from .invoke import dtype_name, from_host
from .ndarray import ndarray

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


def uniform(
    low: float = 0.0, high: float = 1.0, size: Any = None, dtype: Any = None,
    device: Device | None = None,
) -> ndarray:  # fmt: skip
    """Evenly distributed in [low, high)."""
    return _draw("uniform", size, dtype, device, low, high)


def normal(
    loc: float = 0.0, scale: float = 1.0, size: Any = None, dtype: Any = None,
    device: Device | None = None,
) -> ndarray:  # fmt: skip
    """Normally distributed."""
    return _draw("normal", size, dtype, device, loc, scale)


def randint(low: int, high: int | None = None, size: Any = None, dtype: Any = "int64") -> ndarray:
    """Integers in [low, high), or in [0, low)."""
    bounds = (0, low) if high is None else (low, high)
    return _draw("integers", size, dtype, None, *bounds)


def rand(*size: int) -> ndarray:
    """Evenly distributed in [0, 1), of a shape."""
    return uniform(size=size)


def randn(*size: int) -> ndarray:
    """Normally distributed, of a shape."""
    return normal(size=size)
