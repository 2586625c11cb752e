"""Reshapes between kernels are views; those that callers get are tensors of their own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, topi
from tvm.script import tirx as T

from compiler import relay
from compiler.lowering.codegen.reshape_to_view import is_reshape
from compiler.runtime import graph_executor


def softmax(value):
    exponents = np.exp(value - value.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


@pytest.mark.parametrize("first", [4, "n"])
def test_reshapes_between_kernels_are_views_and_results_are_not(first):
    x = relay.var("x", shape=(first, 6, 8))
    halves = relay.reshape(relay.nn.softmax(x), (-1, 4))
    result = relay.reshape(relay.nn.softmax(halves), (-1, 2))
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], result)), "llvm")
    calls = [each.calls for each in library.report.kernels if each.operators == ["reshape"]]
    assert calls == [1]  # that of the result
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for seed in range(2):
        value = np.random.default_rng(seed).standard_normal((4, 6, 8)).astype("float32")
        module.run(x=value)
        expected = softmax(softmax(value).reshape(-1, 4)).reshape(-1, 2)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5)


def test_a_kernel_that_moves_elements_is_not_a_reshape_whatever_its_name():
    @T.prim_func(private=True, s_tir=True)
    def turned(x: T.Buffer((3, 4), "float32"), y: T.Buffer((4, 3), "float32")):
        for i, j in T.grid(4, 3):
            with T.sblock("turned"):
                at, to = T.axis.remap("SS", [i, j])
                y[at, to] = x[to, at]

    @T.prim_func(private=True, s_tir=True)
    def same(x: T.Buffer((3, 4), "float32"), y: T.Buffer((12,), "float32")):
        for i in range(12):
            with T.sblock("same"):
                at = T.axis.remap("S", [i])
                y[at] = x[at // 4, at % 4]

    assert not is_reshape(turned, ["reshape"])
    assert is_reshape(same, ["reshape"])
    assert not is_reshape(same, ["multiply"])


def test_a_kernel_whose_result_may_have_another_number_of_elements_is_not_a_reshape():
    n = tvm.tirx.Var("n", "int64")
    x, shape = relax.Var("x", relax.TensorType((2, 3, 6, 2), "uint32")), relax.ShapeExpr([n] * 5)
    builder = relax.BlockBuilder()
    call = builder.call_te(lambda x, shape: topi.reshape(x, shape), x, shape)
    assert not is_reshape(builder.get()[call.args[0]], ["reshape"])
