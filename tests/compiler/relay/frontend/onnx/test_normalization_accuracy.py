"""Normalizations of values whose mean is large, as onnxruntime computes them or better."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from compiler import relay

onnxruntime = pytest.importorskip("onnxruntime")

CHANNELS, EPSILON = 8, 1e-5


def normalized(x, axes):
    """In float64."""
    x = x.astype("float64")
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON)


def results(op_type, x, size, opset, is_open=False, **attributes):
    """Of Baton and of onnxruntime, with a scale of 1 and a shift of 0."""
    shape = ("n", *x.shape[1:]) if is_open else x.shape
    weights = {"scale": np.ones(size, x.dtype), "shift": np.zeros(size, x.dtype)}
    elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *weights], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", elem_type, shape)],
        [helper.make_tensor_value_info("y", elem_type, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    mod, params = relay.frontend.from_onnx(model)
    (mine,) = relay.build(mod, "llvm", params=params).session().run({"x": x}).values()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return mine, session.run(None, {"x": x})[0]


def images(mean, dtype="float32"):
    noise = np.random.default_rng(0).standard_normal((2, CHANNELS, 32, 32))
    return (noise + mean).astype(dtype)


@pytest.mark.parametrize("mean", [1e1, 1e4])
@pytest.mark.parametrize("op_type", ["InstanceNormalization", "LayerNormalization"])
def test_a_large_mean_costs_no_more_digits_than_in_onnxruntime(op_type, mean):
    x = images(mean)
    if op_type == "LayerNormalization":
        x = x.reshape(2, CHANNELS, -1)
    axes = tuple(range(2, x.ndim))
    size = CHANNELS if op_type == "InstanceNormalization" else x.shape[-1]
    mine, theirs = results(op_type, x, size, 17)
    exact = normalized(x, axes)
    limit = max(4 * np.abs(theirs - exact).max(), 4 * mean * 2.0**-24)
    assert np.abs(mine - exact).max() <= limit


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open batch"])
def test_group_normalization_does_not_cancel(opset, groups, is_open):
    x = images(1e3)
    size = CHANNELS if opset == 21 else groups
    attributes = {"num_groups": groups, "epsilon": EPSILON}
    mine, theirs = results("GroupNormalization", x, size, opset, is_open, **attributes)
    exact = normalized(x.reshape(2, groups, -1), 2).reshape(x.shape)
    assert np.abs(mine - exact).max() <= 4e3 * 2.0**-24
    assert np.abs(mine - exact).max() < np.abs(theirs - exact).max()


def test_group_normalization_of_halves_is_computed_in_float32():
    x = images(3, "float16")
    mine, _ = results("GroupNormalization", x, CHANNELS, 21, num_groups=2)
    exact = normalized(x.reshape(2, 2, -1), 2).reshape(x.shape)
    assert mine.dtype == np.float16
    assert np.abs(mine - exact).max() <= 2e-3
