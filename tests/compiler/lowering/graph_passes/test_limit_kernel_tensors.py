"""Concatenations and splits of many tensors are compiled in groups."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.lowering.graph_passes import limit_kernel_tensors
from compiler.runtime import graph_executor


def run(variable, expr, x: np.ndarray) -> tuple[np.ndarray, relay.BuildReport]:
    function = relay.Function([variable], expr)
    library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    return module.get_output(0).numpy(), library.report


LIMIT = 8


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch):
    monkeypatch.setattr(limit_kernel_tensors, "MAX_PARTS", LIMIT)
    monkeypatch.setattr(limit_kernel_tensors, "MAX_RESULTS", LIMIT)


@pytest.mark.parametrize(
    ("function", "count"), [("concatenate", 3 * LIMIT + 3), ("stack", LIMIT + 1)]
)
def test_many_parts_keep_their_order(count, function):
    x = relay.var("x", shape=(2, 3), dtype="float32")
    parts = [relay.add(x, relay.const(float(i))) for i in range(count)]
    data = np.arange(6, dtype="float32").reshape(2, 3)
    expected = getattr(np, function)([data + i for i in range(count)], axis=1)
    result, _ = run(x, relay.nn.relu(getattr(relay, function)(parts, axis=1)), data)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("count", [LIMIT + 1, 3 * LIMIT, LIMIT**2 + 3])
def test_many_results_of_a_split_keep_their_places(count):
    starts = np.cumsum([1 + i % 3 for i in range(count)])
    x = relay.var("x", shape=(2, int(starts[-1])), dtype="float32")
    parts = relay.split(x, tuple(int(start) for start in starts[:-1]), axis=1)
    picked = [parts[i] for i in reversed(range(count))]
    data = np.arange(2 * starts[-1], dtype="float32").reshape(2, -1)
    expected = np.concatenate(np.split(data, starts[:-1], axis=1)[::-1], axis=1)
    result, report = run(x, relay.concatenate(picked, axis=1), data)
    np.testing.assert_array_equal(result, expected)
    stages = [kernel.operators.count("split") for kernel in report.kernels]
    assert max(stages) <= 2


def test_many_images_are_concatenated_by_a_kernel_of_their_own(monkeypatch):
    monkeypatch.setattr(limit_kernel_tensors, "MAX_FUSED_IMAGES", 3)
    x = relay.var("x", shape=(1, 2, 3, 3), dtype="float32")
    data = np.arange(18, dtype="float32").reshape(1, 2, 3, 3)
    for count in (3, 4):
        parts = [relay.add(x, relay.const(float(i))) for i in range(count)]
        result, report = run(x, relay.concatenate(parts, axis=0), data)
        np.testing.assert_array_equal(result, np.concatenate([data + i for i in range(count)]))
        is_fused = any({"add", "concatenate"} <= set(each.operators) for each in report.kernels)
        assert is_fused == (count == 3)
