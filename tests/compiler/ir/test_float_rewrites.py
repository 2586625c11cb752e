"""Rewrites of floats keep values, and every rewrite keeps the type, as ONNX has them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import compiler
from compiler import relay
from compiler.ir import rewrite

LOWEST = float(np.finfo("float32").min)
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def model_of(nodes, inputs, constants, opset=14):
    """A model with one output, "y"; `inputs` by name with shape, all of one dtype."""
    dtypes = [str(value.dtype) for value in constants.values() if value.dtype.kind == "f"]
    kind = TYPES[dtypes[0] if dtypes else "float32"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def expected(model, feed):
    """By ONNX's reference evaluator, one numpy operation for each node."""
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, feed)[0]


def by_onnxruntime(model, feed):
    """For pools with `ceil_mode`, which ONNX's reference evaluator pads otherwise."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, feed)[0]


def computed(model, feed, precision="default"):
    mod, params = relay.frontend.from_onnx(model)
    with compiler.PassContext(opt_level=3, config={"baton.precision": precision}):
        lib = relay.build(mod, "llvm", params=params)
    return lib.session().run(feed)["y"]


def chain(*steps, dtype="float32"):
    """A model that applies ("Mul", 3.0) and the like to x of four elements, one by one."""
    nodes, constants, last = [], {}, "x"
    for index, (operator, value) in enumerate(steps):
        name = "y" if index == len(steps) - 1 else f"t{index}"
        nodes.append(helper.make_node(operator, [last, f"c{index}"], [name]))
        constants[f"c{index}"] = np.array(value, dtype)
        last = name
    return model_of(nodes, {"x": [4]}, constants)


CHAINS = {
    "overflow": (chain(("Mul", 1e30), ("Mul", 1e20)), [0, 1e-30, -1e-30, 1e-25]),
    "underflow": (chain(("Mul", 1e-30), ("Mul", 1e-20)), [1e30, 1e25, 0, -1e30]),
    "rounding": (chain(("Add", 12582912.0), ("Add", -12582912.0)), [0.3, 1.5, -2.7, 100.4]),
    "float16 overflow": (chain(("Mul", 300), ("Mul", 300), dtype="float16"), [0.5, 0.25, 0, -0.5]),
    "float16 underflow": (
        chain(("Mul", 1e-3), ("Mul", 1e-3), dtype="float16"),
        [1000, 500, 2000, 1],
    ),
}


@pytest.mark.parametrize("precision", ["default", "strict"])
@pytest.mark.parametrize("name", CHAINS)
def test_constants_of_a_chain_are_not_combined_out_of_range(name, precision):
    model, values = CHAINS[name]
    dtype = "float16" if name.startswith("float16") else "float32"
    feed = {"x": np.array(values, dtype)}
    np.testing.assert_array_equal(computed(model, feed, precision), expected(model, feed))


def test_softmax_of_a_doubled_lowest_mask_is_finite():
    nodes = [
        helper.make_node("Sub", ["one", "mask"], ["inverse"]),
        helper.make_node("Mul", ["inverse", "lowest"], ["bias"]),
        helper.make_node("Mul", ["bias", "two"], ["doubled"]),
        helper.make_node("Add", ["scores", "doubled"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    constants = {"one": np.float32(1), "lowest": np.float32(LOWEST), "two": np.float32(2)}
    constants = {name: np.array(value) for name, value in constants.items()}
    model = model_of(nodes, {"mask": [2, 4], "scores": [2, 4]}, constants)
    feed = {
        "mask": np.array([[1, 1, 0, 0], [1, 1, 1, 1]], "float32"),
        "scores": np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4),
    }
    np.testing.assert_allclose(computed(model, feed), expected(model, feed), rtol=1e-6)


STEP = st.tuples(
    st.sampled_from(["Add", "Sub", "Mul", "Div"]),
    st.sampled_from([1e-38, 1e-20, 0.1, 1.0, -3.0, 8.0, 1e5, 12582912.0, -12582912.0, 1e30]),
)


@pytest.mark.parametrize("precision", ["default", "strict"])
@pytest.mark.parametrize(
    "steps",
    [
        [("Add", 0.1), ("Sub", 0.1)],
        [("Add", 12582912.0), ("Sub", 12582912.0)],
        [("Sub", 1e5), ("Add", 1e5)],
        [("Add", 1e5), ("Mul", 1.0), ("Sub", 1e5)],
        [("Add", 1e5), ("Sub", 1e5), ("Add", 1e5), ("Sub", 1e5)],
    ],
)
def test_what_adding_a_constant_rounds_away_does_not_come_back(steps, precision):
    model, feed = chain(*steps), {"x": np.array([0.3, -1.5, 1e-12, 3e10], "float32")}
    np.testing.assert_array_equal(computed(model, feed, precision), expected(model, feed))


def test_a_sum_less_one_of_its_parts_is_rounded_also_behind_a_reshape():
    nodes = [
        helper.make_node("Add", ["x", "z"], ["sum"]),
        helper.make_node("Reshape", ["sum", "shape"], ["flat"]),
        helper.make_node("Reshape", ["z", "shape"], ["part"]),
        helper.make_node("Sub", ["flat", "part"], ["rest"]),
        helper.make_node("Sub", ["part", "flat"], ["negative"]),
        helper.make_node("Add", ["rest", "negative"], ["zero"]),
        helper.make_node("Concat", ["rest", "negative", "zero"], ["y"], axis=0),
    ]
    model = model_of(nodes, {"x": [2, 4], "z": [2, 4]}, {"shape": np.array([8])})
    rng = np.random.default_rng(0)
    feed = {"x": rng.uniform(-1, 1, (2, 4)).astype("float32")}
    feed["z"] = (rng.uniform(1, 2, (2, 4)) * 1e5).astype("float32")
    np.testing.assert_array_equal(computed(model, feed), expected(model, feed))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=2, max_size=6), st.sampled_from(["default", "strict"]))
def test_random_chains_with_extreme_constants_are_those_of_onnx(steps, precision):
    model = chain(*steps)
    feed = {"x": np.array([0.3, -1.5, 1e-12, 3e10], "float32")}
    np.testing.assert_allclose(
        computed(model, feed, precision), expected(model, feed), rtol=1e-6, atol=1e-44
    )


def convolution_with(*steps):
    """A 1x1 convolution followed by per-channel constants."""
    weights = np.linspace(0.1, 1.2, 6, dtype="float32").reshape(3, 2, 1, 1)
    nodes, constants, last = [helper.make_node("Conv", ["x", "w"], ["t"])], {"w": weights}, "t"
    for index, (operator, value) in enumerate(steps):
        name = "y" if index == len(steps) - 1 else f"t{index}"
        nodes.append(helper.make_node(operator, [last, f"c{index}"], [name]))
        constants[f"c{index}"] = np.full((1, 3, 1, 1), value, "float32")
        last = name
    return model_of(nodes, {"x": [1, 2, 3, 3]}, constants)


@pytest.mark.parametrize(
    "steps",
    [
        [("Mul", 1e30), ("Mul", 1e20)],
        [("Mul", 1e-30), ("Mul", 1e-20)],
        [("Add", 12582912.0), ("Add", -12582912.0)],
    ],
)
def test_scales_and_shifts_are_folded_into_weights_only_within_range(steps):
    model = convolution_with(*steps)
    data = np.linspace(1, 2, 18, dtype="float32").reshape(1, 2, 3, 3)
    if steps[0] == ("Mul", 1e30):
        data *= np.float32(1e-30)
    if steps[0] == ("Mul", 1e-30):
        data *= np.float32(1e30)
    np.testing.assert_allclose(
        computed(model, {"x": data}), expected(model, {"x": data}), rtol=1e-5
    )


def layer_norm(shape, gamma):
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["variance"], axes=[-1]),
        helper.make_node("Add", ["variance", "epsilon"], ["total"]),
        helper.make_node("Sqrt", ["total"], ["root"]),
        helper.make_node("Div", ["d", "root"], ["normal"]),
        helper.make_node("Mul", ["normal", "gamma"], ["y"]),
    ]
    constants = {
        "epsilon": np.array(1e-5, "float32"),
        "gamma": np.linspace(0.5, 1.5, gamma[-1], dtype="float32").reshape(gamma),
    }
    return model_of(nodes, {"x": shape}, constants, 13)


@pytest.mark.parametrize("shape, gamma", [((4, 8), (1, 1, 8)), ((8,), (1, 8)), ((4, 8), (8,))])
def test_a_recognized_layer_norm_keeps_the_rank_of_its_gamma(shape, gamma):
    model = layer_norm(list(shape), gamma)
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    want = expected(model, {"x": data})
    have = computed(model, {"x": data})
    assert have.shape == want.shape
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [3, "n"])
def test_a_recognized_gelu_keeps_the_rank_of_its_constants(rows):
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["p"]),
        helper.make_node("Mul", ["x", "p"], ["t"]),
        helper.make_node("Mul", ["t", "half"], ["y"]),
    ]
    values = {"root": 2**0.5, "one": 1, "half": 0.5}
    constants = {name: np.full((1, 1, 1), value, "float32") for name, value in values.items()}
    model = model_of(nodes, {"x": [rows, 8]}, constants, 13)
    data = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    want = expected(model, {"x": data})
    have = computed(model, {"x": data})
    assert have.shape == want.shape == (1, 3, 8)
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size, window", [(7, 2), (8, 3)])
def test_padding_stays_outside_of_a_pool_with_ceil_mode(size, window):
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node(
            "AveragePool",
            ["p"],
            ["y"],
            kernel_shape=[window] * 2,
            strides=[window] * 2,
            ceil_mode=1,
        ),
    ]
    model = model_of(nodes, {"x": [1, 3, size, size]}, {}, 12)
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads")
    model.graph.initializer.append(pads)
    data = np.random.default_rng(0).standard_normal((1, 3, size, size)).astype("float32")
    want = by_onnxruntime(model, {"x": data})
    have = computed(model, {"x": data})
    assert have.shape == want.shape
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


class _DropsAnAxis(rewrite.CallRule):
    def rewrite(self, call, name):
        return relax.op.squeeze(call, [0]) if name == "exp" else None


def test_a_rule_that_changes_the_shape_is_not_applied(monkeypatch):
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [data]):
        builder.emit_func_output(builder.emit(relax.op.exp(data)))
    mod = builder.get()
    monkeypatch.delenv(rewrite.DEBUG_VARIABLE)
    assert rewrite.rewrite_calls(mod, _DropsAnAxis).same_as(mod)
    monkeypatch.setenv(rewrite.DEBUG_VARIABLE, "1")
    with pytest.raises(TypeError, match="exp of"):
        rewrite.rewrite_calls(mod, _DropsAnAxis)
