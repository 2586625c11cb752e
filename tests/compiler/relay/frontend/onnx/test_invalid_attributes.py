"""Invalid attributes of ONNX nodes are rejected with the node, the operator and the attribute."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import FrontendError, UnsupportedOperatorError
from compiler.relay.frontend.onnx import from_onnx

IMAGE, MATRIX, WEIGHT = (1, 4, 8, 8), (3, 4), np.ones((4, 4, 3, 3), "float32")
WINDOW = {"kernel_shape": [2, 2]}
SCALES = [np.zeros(0, "float32"), np.array([1, 1, 2, 2], "float32")]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def ints(*values):
    return np.array(values, "int64")


def imported(kind, shape, attributes, weights=(), opset=17, outputs=1):
    """Import a model of one node without running ONNX's checker on it."""
    names = [f"w{index}" for index in range(len(weights))]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(kind, ["x", *names], results, name="here")
    for name, value in attributes.items():
        kind_of = onnx.AttributeProto.INTS if value == [] else None
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind_of))
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(value, name) for value, name in zip(weights, names)],
    )
    opsets = [helper.make_opsetid("", opset)]
    return from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=8))


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"dilations": [0, 1]}, "dilations"),
        ({"dilations": [-1, 1]}, "dilations"),
        ({"dilations": [1]}, "dilations"),
        ({"strides": [0, 1]}, "strides"),
        ({"strides": [-1, 1]}, "strides"),
        ({"strides": [1]}, "strides"),
        ({"strides": []}, "strides"),
        ({"strides": 1}, "strides has the type int; expected ints"),
        ({"strides": [1.0, 1.0]}, "strides has the type floats; expected ints"),
        ({"kernel_shape": [2, 3]}, r"kernel_shape=\[2, 3\] is invalid: .* \[3, 3\]"),
        ({"kernel_shape": [3]}, "kernel_shape"),
        ({"auto_pad": "SAME"}, "auto_pad='SAME' is invalid: expected one of NOTSET, SAME_UPPER"),
        ({"auto_pad": "same_upper"}, "auto_pad"),
        ({"auto_pad": 1}, "auto_pad has the type int; expected string"),
        ({"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}, "pads.*auto_pad"),
        ({"auto_pad": "VALID", "pads": [1, 1, 1, 1]}, "pads.*auto_pad"),
        ({"group": 0}, "group=0 is invalid: it must be at least 1"),
        ({"group": -1}, "group"),
        ({"group": 3}, "group"),
        ({"group": [1]}, "group has the type ints; expected int"),
        ({"pads": [-1, 0, 0, 0]}, "pads"),
        ({"pads": [1, 1]}, "pads"),
        ({"pads": [1] * 6}, "pads"),
    ],
)
def test_convolutions_with_invalid_attributes_are_rejected(kind, attributes, named):
    with pytest.raises(UnsupportedOperatorError, match=f"{kind} .*'here'.*{named}"):
        imported(kind, IMAGE, attributes, [WEIGHT])


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({}, "kernel_shape is missing"),
        ({"kernel_shape": [0, 2]}, "kernel_shape"),
        ({"kernel_shape": [-1, 2]}, "kernel_shape"),
        ({"kernel_shape": [2]}, "kernel_shape"),
        ({"strides": [0, 1], **WINDOW}, "strides"),
        ({"strides": [1], **WINDOW}, "strides"),
        ({"dilations": [0, 1], **WINDOW}, "dilations"),
        ({"pads": [-1, 0, 0, 0], **WINDOW}, "pads"),
        ({"pads": [1, 1], **WINDOW}, "pads"),
        ({"pads": [0, 0, 2, 2], **WINDOW}, "pads.*smaller than kernel_shape"),
        ({"auto_pad": "SAME", **WINDOW}, "auto_pad"),
    ],
)
def test_pools_with_invalid_attributes_are_rejected(kind, attributes, named):
    with pytest.raises(UnsupportedOperatorError, match=f"{kind} .*'here'.*{named}"):
        imported(kind, IMAGE, attributes, opset=19)


CASES = {
    "split-short": ("Split", (6, 4), {}, [ints(2, 3)], 17, 2, "split"),
    "split-long": ("Split", (6, 4), {"split": [2, 5]}, [], 11, 2, "split"),
    "split-negative": ("Split", (6, 4), {}, [ints(-1, 7)], 17, 2, "split.*negative"),
    "split-count": ("Split", (6, 4), {"split": [2, 2, 2]}, [], 11, 2, "split.*2 outputs"),
    "num-outputs": ("Split", (6, 4), {"num_outputs": 3}, [], 18, 2, "num_outputs=3.*2 outputs"),
    "num-outputs-10": ("Split", (10,), {"num_outputs": 8}, [], 18, 8, "num_outputs"),
    "k-beyond": ("TopK", MATRIX, {}, [ints(5)], 17, 2, "k=5.*between 0 and the extent 4"),
    "k-negative": ("TopK", MATRIX, {}, [ints(-1)], 17, 2, "k=-1"),
    "k-attribute": ("TopK", MATRIX, {"k": 5}, [], 9, 2, "k=5"),
    "axis-beyond": ("Softmax", MATRIX, {"axis": 2}, [], 17, 1, "axis 2"),
    "axis-before": ("ArgMax", MATRIX, {"axis": -3}, [], 17, 1, "axis -3"),
    "axis-float": ("Softmax", MATRIX, {"axis": 1.0}, [], 17, 1, "axis has the type float"),
    "axis-gather": ("Gather", MATRIX, {"axis": 2}, [ints(0)], 17, 1, "axis 2"),
    "perm-twice": ("Transpose", MATRIX, {"perm": [0, 0]}, [], 17, 1, "perm.*permutation"),
    "perm-negative": ("Transpose", MATRIX, {"perm": [-1, -2]}, [], 17, 1, "perm.*permutation"),
    "perm-count": ("Transpose", MATRIX, {"perm": [0]}, [], 17, 1, "perm.*permutation"),
    "squeeze-twice": ("Squeeze", (1, 4), {"axes": [0, 0]}, [], 11, 1, "axes"),
    "unsqueeze-twice": ("Unsqueeze", MATRIX, {}, [ints(0, 0)], 17, 1, "Axis 0"),
    "reduce-twice": ("ReduceSum", MATRIX, {}, [ints(0, 0)], 17, 1, "axes"),
    "reduce-beyond": ("ReduceMax", MATRIX, {"axes": [2]}, [], 17, 1, "axes|axis"),
    "concat-ranks": ("Concat", MATRIX, {"axis": 0}, [np.ones(3, "float32")], 17, 1, "rank|ndim"),
    "blocksize-0": ("DepthToSpace", IMAGE, {"blocksize": 0}, [], 17, 1, "blocksize"),
    "blocksize--1": ("SpaceToDepth", IMAGE, {"blocksize": -1}, [], 17, 1, "blocksize"),
    "lrn-size-0": ("LRN", IMAGE, {"size": 0}, [], 17, 1, "size=0"),
    "cast-0": ("Cast", MATRIX, {"to": 0}, [], 17, 1, "to|type|0"),
    "cast-99": ("Cast", MATRIX, {"to": 99}, [], 17, 1, "to|type|99"),
    "resize-mode": ("Resize", IMAGE, {"mode": "area"}, SCALES, 17, 1, "mode='area'.*nearest"),
    "resize-nearest": ("Resize", IMAGE, {"exclude_outside": 1}, SCALES, 17, 1, "exclude_outside"),
    "resize-scale": ("Resize", IMAGE, {}, [SCALES[0], -SCALES[1]], 17, 1, "[Ss]cale"),
    "resize-coordinates": (
        *("Resize", IMAGE, {"coordinate_transformation_mode": "foo"}, SCALES, 17, 1),
        "coordinate",
    ),
    "upsample-scale": ("Upsample", IMAGE, {}, [SCALES[1] / 2], 9, 1, "scales.*at least 1"),
    "other-version": ("Squeeze", (1, 4), {"axes": [0]}, [], 17, 1, "axes is not in opset 17"),
    "inputs": ("Relu", MATRIX, {}, [np.ones(4, "float32")], 17, 1, "2 inputs; expected at most 1"),
    "storage-order": ("MaxPool", IMAGE, {"storage_order": 2, **WINDOW}, [], 17, 1, "storage_order"),
    "output-padding": (
        *("ConvTranspose", IMAGE, {"output_padding": [-1, 0], "strides": [2, 2]}, [WEIGHT]),
        *(17, 1, "output_padding"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operators_with_invalid_attributes_are_rejected(case):
    kind, shape, attributes, weights, opset, outputs, named = CASES[case]
    with pytest.raises(UnsupportedOperatorError, match=f"{kind} .*'here'.*({named})"):
        imported(kind, shape, attributes, weights, opset, outputs)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ({"direction": "both"}, "direction='both'.*forward, reverse, bidirectional"),
        ({"direction": "bidirectional"}, "2 directions"),
        ({"hidden_size": 5}, "hidden_size=5.*hidden size of 3"),
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"hidden_size": 3.0}, "hidden_size has the type float"),
        ({"activations": ["Tanh"] * 4}, "activations"),
        ({"clip": -1.0}, "clip"),
        ({"layout": 2}, "layout=2"),
    ],
)
def test_recurrent_layers_with_invalid_attributes_are_rejected(kind, attributes, named):
    rows = 3 * GATES[kind]
    weights = [np.ones((1, rows, 2), "float32"), np.ones((1, rows, 3), "float32")]
    with pytest.raises(UnsupportedOperatorError, match=f"{kind} .*'here'.*{named}"):
        imported(kind, (4, 1, 2), attributes, weights, opset=14)


@pytest.mark.parametrize(
    "text",
    [
        "a, a = Split(x) y = Relu(a)",
        "y = Relu(x) y = Neg(x)",
        "x = Relu(x) y = Neg(x)",
        "c = Relu(x) y = Neg(c)",
        "y = If(b) <then_branch = t () => (float[4] z) { z = Relu(x) z = Neg(x) }, "
        "else_branch = e () => (float[4] v) { v = Relu(x) }>",
    ],
)
def test_values_with_two_definitions_are_rejected(text):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> test (float[4] x, bool b) => (float[4] y) '
        f"<float[4] c = {{1, 2, 3, 4}}> {{ {text} }}"
    )
    with pytest.raises(FrontendError, match=r"defines '[acxyz]', which is already an? "):
        from_onnx(model)


@pytest.mark.parametrize(
    ("kind", "attributes", "weights"),
    [
        ("Conv", {"auto_pad": ""}, [WEIGHT]),
        ("ConvTranspose", {"auto_pad": ""}, [WEIGHT]),
        ("Conv", {"auto_pad": "SAME_UPPER", "pads": [0, 0, 0, 0]}, [WEIGHT]),
        ("MaxPool", {"auto_pad": "SAME_LOWER", "pads": [1, 1, 1, 1], **WINDOW}, []),
        ("Relu", {"unknown": 1}, []),
        ("Relu", {"consumed_inputs": [0]}, []),
        ("LRN", {"size": 2}, []),
    ],
)
def test_unusual_attributes_with_a_meaning_are_accepted(kind, attributes, weights):
    assert "main" in str(imported(kind, IMAGE, attributes, weights)[0])


def test_an_empty_auto_pad_is_the_default(agrees, model):
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="")
    proto = model([node], {"x": IMAGE}, ["y"], {"w": WEIGHT})
    agrees(proto, {"x": np.ones(IMAGE, "float32")})


def test_a_range_with_bounds_of_one_element_is_accepted():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> test (float[4] x) => (int64[4] y) '
        "<int64 a = {0}, int64[1] b = {4}, int64 c = {1}> { y = Range(a, b, c) }"
    )
    assert "main" in str(from_onnx(model)[0])


@pytest.mark.parametrize("columns", [0, 3, "n"])
def test_boxes_without_four_coordinates_are_rejected(columns):
    weights = [np.ones((1, 1, 6), "float32"), ints(1)]
    with pytest.raises(UnsupportedOperatorError, match="boxes must have 4 elements"):
        imported("NonMaxSuppression", (1, 6, columns), {}, weights)


def test_causal_convolution_with_an_empty_window_in_a_function_is_rejected():
    node = helper.make_node("CausalConvWithState", ["a", "b"], ["r", "state"], name="inner")
    opsets = [helper.make_opsetid("", 27), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "F", ["a", "b"], ["r"], [node], opsets[:1])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("F", ["x", "w"], ["y"], domain="own")],
        "test",
        [info("x", TensorProto.FLOAT, (1, 4, 8)), info("w", TensorProto.FLOAT, (4, 1, 0))],
        [info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)
    with pytest.raises(UnsupportedOperatorError, match=r"'inner'.*input 1.*kernel_shape"):
        from_onnx(model)


def test_equal_nodes_are_inferred_once(monkeypatch):
    infer, seen = onnx.shape_inference.infer_node_outputs, []

    def count(schema, *arguments, **options):
        seen.append(schema.name)
        return infer(schema, *arguments, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", count)
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(10)]
    nodes.append(helper.make_node("Softmax", ["v10"], ["v11"], axis=1))
    nodes.append(helper.make_node("Softmax", ["v11"], ["y"], axis=0))
    info = helper.make_tensor_value_info
    ends = [info("v0", TensorProto.FLOAT, (2, 3))], [info("y", TensorProto.FLOAT, (2, 3))]
    graph = helper.make_graph(nodes, "test", *ends)
    from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert seen == ["Relu", "Softmax", "Softmax"]
