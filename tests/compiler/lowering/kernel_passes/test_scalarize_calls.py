"""Functions that the C library has of scalars alone, on vectors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.runtime import graph_executor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["cosh", "sinh"])
def test_hyperbolic_functions_of_whole_vectors(name, dtype):
    x = relay.var("x", shape=(64,), dtype=dtype)
    doubled = getattr(relay, name)(relay.add(x, x))
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], doubled)), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    values = np.linspace(-3, 3, 64, dtype=dtype)
    module.run(x=values)
    expected = getattr(np, name)(2 * values)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-6)


def built(name, dtype, values):
    x = relay.var("x", shape=values.shape, dtype=dtype)
    function = relay.Function([x], getattr(relay, name)(x))
    module = graph_executor.GraphModule(
        relay.build(tvm.IRModule.from_expr(function), "llvm")["default"](tvm.cpu())
    )
    module.run(x=values)
    return module.get_output(0).numpy()


NAMES = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan"]


@pytest.mark.parametrize("name", NAMES)
def test_functions_without_a_form_for_halves_compute_in_float32(name):
    values = np.linspace(0.1, 0.9, 19, dtype="float16") + np.float16(name == "acosh")
    numpy_name = name.replace("a", "arc", 1) if name.startswith("a") else name
    expected = getattr(np, numpy_name)(values.astype("float32")).astype("float16")
    np.testing.assert_allclose(built(name, "float16", values), expected, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "exact"), [("atanh", np.arctanh), ("tanh", np.tanh)])
def test_hyperbolic_tangents_are_exact_near_zero(name, exact, dtype):
    values = np.array([1e-40, 1e-9, -1e-5, 0.3, -1.0, 2.5, -40.0, np.nan, np.inf] * 2, dtype)
    with np.errstate(all="ignore"):
        expected = exact(values)
    with tvm.transform.PassContext(opt_level=0):
        got = built(name, dtype, values)
    np.testing.assert_allclose(got, expected, rtol=8 * np.finfo(dtype).eps)
