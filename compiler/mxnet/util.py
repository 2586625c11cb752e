"""Names of `mxnet.util`: switches for numpy's semantics, which are always on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .npx import is_np_array, is_np_shape, reset_np, set_np


def use_np(function: Any) -> Any:
    """Return the function or class unchanged."""
    return function


use_np_shape = use_np_array = use_np_default_dtype = use_np


@contextlib.contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """Open a context that changes nothing."""
    yield


np_array = np_default_dtype = np_shape
