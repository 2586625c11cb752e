"""Sums of halves are those of float32, rounded once."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from compiler.lowering.graph_passes.legalize import legalize_ops

SHAPE = (2, 3, 64, 64)
# 4096 elements of 100 have a sum that a half does not reach.
CASES = {
    "mean": (lambda x: op.mean(x, [2, 3]), lambda x: x.mean((2, 3))),
    "sum": (lambda x: op.sum(op.multiply(x, relax.const(0.01, "float16")), [2, 3]), None),
    "adaptive_avg_pool2d": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)),
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "avg_pool2d": (
        lambda x: op.nn.avg_pool2d(x, (64, 64)),
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "softmax": (lambda x: op.nn.softmax(op.reshape(x, (6, 4096))), None),
    "variance": (lambda x: op.variance(x, [2, 3]), lambda x: x.var((2, 3))),
}


def kernel(build):
    """The module of one operator, legalized."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(build(x)))
        builder.emit_func_output(out)
    return legalize_ops()(builder.get())


def run(mod, x):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy().astype("float64")


@pytest.mark.parametrize("name", ["mean", "adaptive_avg_pool2d", "avg_pool2d", "variance"])
def test_it_is_right_where_a_sum_of_halves_is_infinite(name):
    build, expected = CASES[name]
    x = np.random.default_rng(0).uniform(90, 110, SHAPE).astype("float16")
    found = run(kernel(build), x)
    np.testing.assert_allclose(found, expected(x.astype("float64")), rtol=2e-3)


@pytest.mark.parametrize("name", ["sum", "softmax"])
def test_many_small_terms_count(name):
    build, _ = CASES[name]
    x = np.full(SHAPE, 100, "float16")
    found = run(kernel(build), x)
    expected = {"sum": 4096 * float(np.float16(100) * np.float16(0.01)), "softmax": 1 / 4096}[name]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
