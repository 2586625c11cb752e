"""Concatenations of many tensors are compiled in groups."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.lowering.graph_passes.split_concat import MAX_PARTS
from compiler.runtime import graph_executor


def run(variable, expr, x: np.ndarray) -> np.ndarray:
    function = relay.Function([variable], expr)
    library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    return module.get_output(0).numpy()


@pytest.mark.parametrize(
    ("function", "count"), [("concatenate", 3 * MAX_PARTS + 3), ("stack", MAX_PARTS + 1)]
)
def test_many_parts_keep_their_order(count, function):
    x = relay.var("x", shape=(2, 3), dtype="float32")
    parts = [relay.add(x, relay.const(float(i))) for i in range(count)]
    data = np.arange(6, dtype="float32").reshape(2, 3)
    expected = getattr(np, function)([data + i for i in range(count)], axis=1)
    result = run(x, relay.nn.relu(getattr(relay, function)(parts, axis=1)), data)
    np.testing.assert_array_equal(result, expected)
