"""Divisions of numbers that are not negative, and of others."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from compiler import relay
from compiler.lowering.kernel_passes.floordiv_to_truncdiv import divide_plainly
from compiler.runtime import graph_executor


def divisions(value):
    """The names of the divisions in a function that stores `value(i, n)` for each i below n."""
    n, i = tirx.Var("n", "int64"), tirx.Var("i", "int64")
    result, view = (tirx.decl_buffer((n,), "int64") for _ in range(2))
    store = tirx.BufferStore(view, value(i, n), [i])
    loop = tirx.For(i, tirx.const(0, "int64"), n, tirx.ForKind.SERIAL, store)
    body = tirx.stmt_seq(tirx.stmt.DeclBuffer(view, data=result.data), loop)
    mod = divide_plainly(tvm.IRModule({"main": tirx.PrimFunc([result, n], body)}))
    found = []
    kinds = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
    tvm_ffi.structural_walk(mod["main"].body, (kinds, lambda each: found.append(type(each))))
    return found


def test_what_counts_is_divided_plainly():
    assert divisions(lambda i, n: tirx.floordiv(i * n + i, n)) == [tirx.Div]
    nested = divisions(lambda i, n: tirx.floormod(tirx.floordiv(i, n), tirx.max(n - 3, i)))
    assert nested == [tirx.Div, tirx.Mod]


def test_what_may_be_negative_is_rounded_down():
    assert divisions(lambda i, n: tirx.floordiv(i - 1, n)) == [tirx.FloorDiv]
    assert divisions(lambda i, n: tirx.floormod(i, n - 3)) == [tirx.FloorMod]


@pytest.mark.parametrize("shape", [(0, 3), (4, 6), (6, 4)])
def test_a_reshape_of_symbols_agrees(shape):
    x = relay.var("x", shape=("m", "n", 2))
    y = relay.var("y", shape=("n", "m", 2))
    function = relay.Function([x, y], relay.add(relay.reshape_like(x, y), y))
    module = graph_executor.GraphModule(relay.build(function, "llvm")["default"](tvm.cpu()))
    values = np.arange(2 * shape[0] * shape[1], dtype="float32").reshape(*shape, 2)
    other = values.reshape(*shape[::-1], 2)
    module.run(x=values, y=other)
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * other)
