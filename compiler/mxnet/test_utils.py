"""Names of `mxnet.test_utils`: comparison of arrays."""

from __future__ import annotations

from typing import Any

import numpy

from .device import current_device as default_device
from .util import use_np

default_context = default_device
assert_allclose = numpy.testing.assert_allclose


def assert_almost_equal(
    a: Any, b: Any, rtol: float | None = None, atol: float | None = None, *_: Any, **__: Any
) -> None:
    """Compare arrays; the default tolerances depend on their dtypes."""
    left, right = numpy.broadcast_arrays(numpy.asarray(a), numpy.asarray(b))
    is_half = numpy.float16 in (left.dtype, right.dtype)
    numpy.testing.assert_allclose(
        left,
        right,
        rtol=rtol if rtol is not None else (1e-2 if is_half else 1e-4),
        atol=atol if atol is not None else (1e-1 if is_half else 1e-3),
    )


def same(a: Any, b: Any) -> bool:
    """Whether arrays are equal element by element."""
    return bool(numpy.array_equal(numpy.asarray(a), numpy.asarray(b)))
