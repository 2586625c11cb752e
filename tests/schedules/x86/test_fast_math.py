"""The polynomials against numpy and math in float64, over the whole range of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper
from tvm import s_tir, te, tirx

from compiler import relay
from schedules.x86.machine import fast_math

from .kernels import BASELINE, HOST, V3, compiled

SIZE = 1 << 16
# Below this, results of exp and sigmoid may be 0.
SMALLEST = 1.7e-38

FUNCTIONS = {
    "exp": (tirx.exp, np.exp, 6),
    "log": (tirx.log, np.log, 2),
    "tanh": (tirx.tanh, np.tanh, 8),
    "erf": (tirx.erf, np.vectorize(math.erf), 8),
    "sigmoid": (tirx.sigmoid, lambda x: 1 / (1 + np.exp(-x)), 7),
}


def arguments() -> np.ndarray:
    """Random bit patterns, everyday values, and every special one."""
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.7228, 88.73, 89.5, -87.3]
    special += [-103.9, -104.5, 3.4e38, -3.4e38, 1.0, 2.0**-126, 3.92, -3.93, 9.0, -9.1]
    parts = [
        np.array(special, "float32"),
        rng.integers(0, 2**32, SIZE // 2, dtype=np.uint64).astype(np.uint32).view(np.float32),
        rng.uniform(-105, 95, SIZE // 8).astype("float32"),
        rng.uniform(0.5, 2.0, SIZE // 8).astype("float32"),
    ]
    rest = SIZE - sum(part.size for part in parts)
    return np.concatenate([*parts, rng.normal(size=rest, scale=3).astype("float32")])


def vectorized(function, lanes: int) -> tirx.PrimFunc:
    x = te.placeholder((SIZE,), "float32", name="x")
    sch = s_tir.Schedule(te.create_prim_func([x, te.compute((SIZE,), lambda i: function(x[i]))]))
    (loop,) = sch.get_loops("compute")
    sch.vectorize(sch.split(loop, [None, lanes])[1])
    return sch.mod["main"]


@pytest.mark.parametrize("target", [HOST, V3, BASELINE], ids=["host", "v3", "baseline"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_stays_within_its_bound_everywhere(name, target):
    function, reference, ulps = FUNCTIONS[name]
    x = arguments()
    out = tvm.runtime.tensor(np.empty_like(x))
    func = fast_math.approximate(vectorized(function, 16), target)
    compiled(func, target)["main"](tvm.runtime.tensor(x), out)
    got = out.numpy()
    with np.errstate(all="ignore"):
        want = reference(x.astype("float64"))
        rounded = want.astype("float32")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(np.isinf(got), infinite)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    smallest = 2.0**-126 if name == "exp" else SMALLEST
    normal = np.isfinite(rounded) & (np.abs(want) >= smallest)
    error = np.abs(got[normal] - want[normal]) / np.spacing(np.abs(rounded[normal]))
    assert error.max() <= ulps
    tiny = np.isfinite(rounded) & ~normal
    largest = 4 * 2.0**-149 if name == "exp" else SMALLEST
    assert np.abs(got[tiny] - want[tiny]).max(initial=0) <= largest


@pytest.mark.parametrize("level", [0, 3])
def test_exponentials_below_the_normal_numbers_are_there_in_imported_models(level):
    x = np.linspace(-104, -80, 301, dtype="float32")
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
    )
    mod, _ = relay.frontend.from_onnx(helper.make_model(graph))
    with tvm.transform.PassContext(opt_level=level):
        (y,) = relay.build(mod, "llvm").session().run({"x": x}).values()
    want = np.exp(x.astype("float64"))
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=4 * 2.0**-149)
    assert np.count_nonzero(y) == np.count_nonzero(want.astype("float32"))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", [HOST, V3], ids=["host", "v3"])
def test_vectors_call_nothing(name, target):
    func = vectorized(FUNCTIONS[name][0], 8)
    assembly = compiled(fast_math.approximate(func, target), target).mod.inspect_source("asm")
    assert "expf" not in assembly
    assert f"{name}f@" not in assembly
    assert "ymm" in assembly


@pytest.mark.parametrize("target", [HOST, V3, BASELINE], ids=["host", "v3", "baseline"])
def test_a_product_with_a_sigmoid_is_one_division(target):
    func = vectorized(lambda v: tirx.sigmoid(v) * (v + tirx.const(1.0, "float32")), 16)
    func = fast_math.approximate(func, target)
    assert func.script().partition("def main")[2].count(" / ") == 1
    x = np.random.default_rng(0).uniform(-86, 86, SIZE).astype("float32")
    out = tvm.runtime.tensor(np.empty_like(x))
    compiled(func, target)["main"](tvm.runtime.tensor(x), out)
    factor = (x + np.float32(1.0)).astype("float64")
    want = factor / (1 + np.exp(-x.astype("float64")))
    assert np.all(np.abs(out.numpy() - want) <= 8 * np.spacing(np.abs(want.astype("float32"))))


def test_large_negative_arguments_of_silu_give_zero():
    func = fast_math.approximate(vectorized(lambda v: v * tirx.sigmoid(v), 8), HOST)
    x = np.resize(np.array([-89.5, -1e4, -3e38], "float32"), SIZE)
    out = tvm.runtime.tensor(np.ones_like(x))
    compiled(func, HOST)["main"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), 0.0)


@pytest.mark.parametrize("target, parts", [(V3, 1), (BASELINE, 2), (None, 2)])
def test_one_constant_reduces_the_argument_where_a_multiply_add_is_one_instruction(target, parts):
    text = fast_math.approximate(vectorized(tirx.exp, 8), target).script()
    assert text.count("0.693359375") == parts - 1


def test_calls_within_calls_are_replaced_too():
    func = vectorized(lambda x: tirx.log(tirx.const(1.0, "float32") + tirx.exp(x)), 8)
    text = str(fast_math.approximate(func))
    assert "T.exp" not in text
    assert "T.log" not in text


def test_a_function_without_such_calls_is_returned_as_it_is():
    func = vectorized(lambda x: tirx.sqrt(x), 8)
    assert fast_math.approximate(func).same_as(func)


def test_float64_is_left_alone():
    x = te.placeholder((8,), "float64", name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: tirx.exp(x[i]))])
    assert fast_math.approximate(func).same_as(func)


@pytest.mark.parametrize("divisor", [6.0, -3.0, 1e-30, 1e30])
def test_division_by_a_constant_stays_within_one_ulp(divisor):
    x = np.random.default_rng(0).normal(size=SIZE).astype("float32")
    func = fast_math.approximate(vectorized(lambda v: v / tirx.const(divisor, "float32"), 16))
    assert "/" not in func.script().partition("def main")[2]
    out = tvm.runtime.tensor(np.empty_like(x))
    compiled(func, HOST)["main"](tvm.runtime.tensor(x), out)
    exact = (x.astype("f8") / np.float32(divisor)).astype("float32")
    assert np.all(np.abs(out.numpy() - exact) <= np.spacing(np.abs(exact)))


@pytest.mark.parametrize("divisor", [1e-42, math.inf])
def test_division_by_what_has_no_normal_reciprocal_is_left_alone(divisor):
    func = vectorized(lambda v: v / tirx.const(divisor, "float32"), 16)
    assert fast_math.approximate(func).same_as(func)


def test_a_logarithm_that_is_rounded_to_integers_compiles():
    mod = relay.fromtext(
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(1, 3, 3, 3), int8]) -> Tensor[(1, 3, 3, 3), int8] {\n"
        '  %0 = qnn.dequantize(%x, 0.5f, -128, out_dtype="float32");\n'
        "  %1 = log(%0);\n"
        '  qnn.quantize(%1, 0.25f, -128, out_dtype="int8")\n'
        "}\n"
    )
    x = np.arange(-100, -73, dtype="int8").reshape(1, 3, 3, 3)
    with tvm.transform.PassContext(opt_level=3):
        found = relay.create_executor("graph", mod, target="llvm").evaluate()(x).numpy()
    exact = np.log((x.astype("float64") + 128) * 0.5) / 0.25 - 128
    assert np.abs(found - exact).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_nothing_that_selects_is_bound_to_a_name(name):
    x = te.placeholder((16,), name="x")
    func = te.create_prim_func([x, te.compute((16,), lambda i: getattr(tirx, name)(x[i]))])
    bound = []
    body = fast_math.approximate(func).body
    tvm_ffi.structural_walk(body, (tirx.Let, lambda let: bound.append(let.value)))
    assert bound and not [value for value in bound if isinstance(value, tirx.Select)]
