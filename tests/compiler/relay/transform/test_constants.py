"""FoldConstant: numpy where it can, one program for all that needs kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.ir.constants import array_of
from compiler.relay import executor, transform
from compiler.relay.nested_expressions import nested

VALUES = np.array([[0.4, -1.5, 2.5], [3.5, -0.2, 7.0]], "float32")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The executors that are made."""
    made: list[Any] = []
    create = executor.create_executor

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return create(*args, **kwargs)

    monkeypatch.setattr(executor, "create_executor", counted)
    return made


def folded(*results: relax.Expr) -> list[np.ndarray | None]:
    mod = tvm.IRModule.from_expr(relay.Function([], relay.Tuple(list(results))))
    return [array_of(field) for field in nested(transform.FoldConstant()(mod)["main"]).fields]


def test_arithmetic_is_computed_without_a_program(programs: list[Any]) -> None:
    data = relay.const(VALUES)
    scaled = relay.divide(relay.const(VALUES[0]), relay.sqrt(relay.abs(data)))
    moved = relay.transpose(relay.reshape(scaled, (3, 2)), (1, 0))
    halves = relay.split(moved, 3, axis=1)
    want = (VALUES[0] / np.sqrt(np.abs(VALUES))).reshape(3, 2).T
    first, last, product = folded(halves[0], halves[2], relay.nn.dense(data, data))
    np.testing.assert_allclose(first, want[:, :1], rtol=1e-6)
    np.testing.assert_allclose(last, want[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(product, VALUES @ VALUES.T, rtol=1e-6)
    assert programs == []


def test_what_needs_kernels_is_one_program(programs: list[Any]) -> None:
    data = relay.const(VALUES)
    nearest = relay.round(data)
    places = relay.argmax(relay.multiply(nearest, nearest), axis=1)
    whole = np.array([[0, -2, 3], [4, 0, 7]], "float32")
    rounded, found, log = folded(nearest, places, relay.log2(relay.abs(data)))
    np.testing.assert_array_equal(rounded, whole)
    np.testing.assert_array_equal(found, [2, 2])
    np.testing.assert_allclose(log, np.log2(np.abs(VALUES)), rtol=1e-5)
    assert len(programs) == 1
