"""A check that two modules agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay


@pytest.fixture
def same_values() -> Callable[..., None]:
    """Compare two modules with random inputs, of a seed."""

    def check(before: tvm.IRModule, after: tvm.IRModule, rtol: float = 1e-4) -> None:
        rng = np.random.default_rng(0)
        values = [_random(rng, parameter.ty) for parameter in before["main"].params]
        expected, actual = (
            relay.create_executor("graph", mod).evaluate()(*values) for mod in (before, after)
        )
        for mine, reference in zip(_list(actual), _list(expected)):
            assert mine.shape == reference.shape
            np.testing.assert_allclose(mine.numpy(), reference.numpy(), rtol=rtol, atol=1e-4)

    return check


def _random(rng: np.random.Generator, ty: relax.TensorType) -> np.ndarray:
    shape = [int(each) for each in ty.shape.values]
    if str(ty.dtype).startswith("float"):
        return rng.standard_normal(shape).astype(str(ty.dtype))
    return rng.integers(-100, 100, shape).astype(str(ty.dtype))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
