"""Operators in the spelling of old operator sets, and operands that only running tells."""

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.runtime import graph_executor

INT64 = TensorProto.INT64


def one_node(model, op, feeds, opset, outputs=1, dtypes=None, weights=None, **attributes):
    """A model of one node; its operands are `feeds` and `weights` in alphabetical order."""
    weights = weights or {}
    names = sorted([*feeds, *weights])
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    shapes = {name: value.shape for name, value in feeds.items()}
    kinds = {
        name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()
    } | (dtypes or {})
    return model([node], shapes, results, weights, opset=opset, dtypes=kinds)


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize(
    "bounds", [{"starts": [1, -3], "ends": [4, 1000]}, {"starts": [1], "ends": [-1], "axes": [1]}]
)
def test_slices_with_their_bounds_as_attributes(model, agrees, rng, opset, bounds):
    feeds = {"x": rng.standard_normal((5, 6)).astype("float32")}
    agrees(one_node(model, "Slice", feeds, opset, **bounds), feeds)


@pytest.mark.parametrize("axis", [1, -1])
def test_scatter_counts_negative_indices_from_the_end(model, agrees, rng, axis):
    feeds = {
        "a": rng.standard_normal((3, 4)).astype("float32"),
        "b": np.array([[0, -1], [-4, 2]]),
        "c": rng.standard_normal((2, 2)).astype("float32"),
    }
    agrees(one_node(model, "Scatter", feeds, 10, axis=axis), feeds)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"])
def test_a_reduction_over_no_axes_still_takes_each_element(model, agrees, rng, op):
    data = rng.standard_normal((2, 3)).astype("float32")
    feeds = {"x": np.abs(data) if op == "ReduceLogSum" else data}
    agrees(one_node(model, op, feeds, 18, noop_with_empty_axes=1), feeds)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling_with_automatic_pads(model, agrees, rng, op, mode):
    feeds = {"x": rng.standard_normal((1, 2, 7, 8)).astype("float32")}
    pooled = {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": mode}
    agrees(one_node(model, op, feeds, 11, **pooled), feeds)


def test_resize_of_opset_10_rounds_up_where_it_shrinks(model, agrees, rng):
    feeds = {"a": rng.standard_normal((1, 1, 4, 4)).astype("float32")}
    scales = {"b": np.array([1, 1, 0.6, 2], "float32")}
    agrees(one_node(model, "Resize", feeds, 10, weights=scales), feeds)


def test_a_mask_of_dropout_is_empty_before_opset_12(model, agrees, rng):
    feeds = {"x": rng.standard_normal((2, 3)).astype("float32")}
    agrees(one_node(model, "Dropout", feeds, 10, 2, dtypes={"y1": TensorProto.BOOL}), feeds)


def test_a_batch_norm_of_every_element(model, agrees, rng):
    feeds = {"a": rng.standard_normal((2, 3, 4)).astype("float32")}
    weights = {name: rng.standard_normal((3, 4)).astype("float32") for name in "bcd"}
    weights["e"] = np.abs(rng.standard_normal((3, 4))).astype("float32")
    agrees(one_node(model, "BatchNormalization", feeds, 7, weights=weights, spatial=0), feeds)


BOXES = np.array(
    [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]],
    "float32",
)
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5]]], "float32")
LIMITS = {"c": np.array([3]), "d": np.array([0.9], "float32"), "e": np.array([0.55], "float32")}


@pytest.mark.parametrize("known", ["", "c", "cde"])
@pytest.mark.parametrize("overlap", [0.5, 0.9])
def test_suppression_takes_its_limits_whenever_they_are_known(model, known, overlap):
    limits = {**LIMITS, "d": np.array([overlap], "float32")}
    feeds = {"a": BOXES, "b": SCORES, **{k: v for k, v in limits.items() if k not in known}}
    weights = {k: v for k, v in limits.items() if k in known}
    proto = one_node(model, "NonMaxSuppression", feeds, 11, dtypes={"y0": INT64}, weights=weights)
    expected = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, feeds)[0]
    assert len(expected) == (2 if overlap == 0.5 else 3)
    assert built(proto, feeds).tolist() == expected.tolist()


def test_suppression_without_a_limit_keeps_no_box_and_one_that_is_left_out_is_no_default(model):
    feeds = {"a": BOXES, "b": SCORES}
    proto = one_node(model, "NonMaxSuppression", feeds, 11, dtypes={"y0": INT64})
    assert built(proto, feeds).shape == (0, 3)
    low = {**feeds, "b": SCORES - 1, "c": np.array([9])}  # without a threshold, all scores count
    assert len(built(one_node(model, "NonMaxSuppression", low, 11, dtypes={"y0": INT64}), low)) == 2


def built(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The result of the model, imported and built by Baton."""
    mod, params = relay.frontend.from_onnx(proto)
    module = graph_executor.GraphModule(
        relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
    )
    for name, value in feeds.items():
        module.set_input(name, value)
    module.run()
    return module.get_output(0).numpy()


@pytest.mark.parametrize(
    ("op", "opset", "constant", "attributes"),
    [
        ("Squeeze", 11, np.array([[-1]]), {"axes": [1]}),
        ("Unsqueeze", 11, np.zeros((2, 3), "float32"), {"axes": [2, 0]}),
        ("Softmax", 11, np.arange(12, dtype="float32").reshape(2, 2, 3), {}),
        ("ReduceSum", 11, np.full(5000, 1, "float16"), {}),
        ("ReduceLogSumExp", 17, np.full(2, -np.inf, "float32"), {}),
    ],
)
def test_constants_are_computed_as_their_operator_set_says(
    model, agrees, op, opset, constant, attributes
):
    dtypes = {"y0": helper.np_dtype_to_tensor_dtype(constant.dtype)}
    proto = one_node(model, op, {}, opset, dtypes=dtypes, weights={"x": constant}, **attributes)
    agrees(proto, {})


def test_constants_are_computed_while_importing(model, agrees, operators):
    weights = {"a": np.arange(5), "b": np.array([-9]), "c": np.array([-99]), "d": np.array([0])}
    backwards = one_node(
        model, "Slice", {}, 13, dtypes={"y0": INT64}, weights={**weights, "e": np.array([-1])}
    )
    for proto in (
        one_node(model, "Neg", {}, 13, dtypes={"y0": INT64}, weights={"a": np.arange(3)}),
        backwards,
    ):
        assert not operators(agrees(proto, {}))
