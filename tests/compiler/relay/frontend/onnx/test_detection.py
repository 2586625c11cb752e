"""Detectors as exporters write them: any number of boxes, suppressed, cut and pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.relay.frontend import from_onnx
from compiler.runtime.graph_executor import GraphModule

NODE = helper.make_node
CHANNELS, TOP = 16, 6


def both(proto: onnx.ModelProto) -> tuple[Any, Any]:
    """Functions of the inputs: Baton's library and onnxruntime."""
    mod, params = from_onnx(proto)
    executor = GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        executor.run(**feeds)
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run, lambda feeds: session.run(None, feeds)


def branch(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    result = helper.make_empty_tensor_value_info(output)
    return helper.make_graph(nodes, output, [], [result])


@pytest.fixture(scope="module")
def detector(model) -> tuple[Any, Any]:
    """Scores above a threshold, suppression unless there is none, the best, their features."""
    rng = np.random.default_rng(5)
    suppressed = [
        NODE("Unsqueeze", ["near", "zero"], ["near3"]),
        NODE("Unsqueeze", ["score", "both"], ["score3"]),
        NODE("NonMaxSuppression", ["near3", "score3", "many", "overlap"], ["kept3"]),
        NODE("Gather", ["kept3", "two"], ["kept1"], axis=1),
        NODE("Squeeze", ["kept1", "one"], ["kept"]),
    ]
    nodes = [
        NODE("Greater", ["scores", "threshold"], ["above"]),
        NODE("NonZero", ["above"], ["found2"]),
        NODE("Squeeze", ["found2", "zero"], ["found"]),
        NODE("Gather", ["boxes", "found"], ["near"]),
        NODE("Gather", ["scores", "found"], ["score"]),
        NODE("Shape", ["found"], ["count1"]),
        NODE("Squeeze", ["count1", "zero"], ["count"]),
        NODE("Equal", ["count", "zero0"], ["nothing"]),
        NODE(
            "If",
            ["nothing"],
            ["kept"],
            then_branch=branch([NODE("Identity", ["none"], ["kept0"])], "kept0"),
            else_branch=branch(suppressed, "kept"),
        ),
        NODE("Slice", ["kept", "zero", "top"], ["first"]),
        NODE("Gather", ["near", "first"], ["rois"]),
        NODE("Gather", ["score", "first"], ["best"]),
        NODE("Mul", ["first", "zero0"], ["image_of"]),
        NODE("RoiAlign", ["image", "rois", "image_of"], ["pooled"], **ROI),
        NODE("Flatten", ["pooled"], ["flat"]),
        NODE("Gemm", ["flat", "w", "b"], ["dense"]),
        NODE("Relu", ["dense"], ["features"]),
    ]
    weights = {
        "threshold": np.float32(0.5),
        "overlap": np.float32([0.5]),
        "many": np.array([2000]),
        "none": np.zeros(0, "int64"),
        "zero0": np.array(0),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "both": np.array([0, 1]),
        "top": np.array([TOP]),
        "w": rng.normal(size=(CHANNELS * 4, 32)).astype("float32"),
        "b": rng.normal(size=32).astype("float32"),
    }
    inputs = {"image": (1, CHANNELS, 9, 11), "boxes": (40, 4), "scores": (40,)}
    proto = model(nodes, inputs, ["rois", "best", "features"], weights, opset=16)
    return both(proto)


ROI = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_a_detector_finds_what_onnxruntime_finds(detector, rng, count):
    run, reference = detector
    corners = rng.uniform(0, 6, (40, 2))
    scores = np.where(np.arange(40) < count, rng.uniform(0.6, 1, 40), 0.1)
    feeds = {
        "image": rng.normal(size=(1, CHANNELS, 9, 11)).astype("float32"),
        "boxes": np.hstack([corners, corners + rng.uniform(1, 4, (40, 2))]).astype("float32"),
        "scores": rng.permutation(scores).astype("float32"),
    }
    for found, expected in zip(run(feeds), reference(feeds), strict=True):
        assert found.shape == expected.shape and len(found) <= min(count, TOP)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_suppression_of_many_boxes_of_several_classes_by_score(model, rng):
    """More boxes stay than are compared at once; equal scores go by their place."""
    limits = {"many": np.array([30]), "overlap": np.float32([0.3]), "least": np.float32([0.2])}
    names = ["boxes", "scores", *limits]
    shapes = {"boxes": (2, "n", 4), "scores": (2, 3, "n")}
    proto = model(
        [NODE("NonMaxSuppression", names, ["kept"])],
        shapes,
        ["kept"],
        limits,
        dtypes={"kept": TensorProto.INT64},
    )
    run, reference = both(proto)
    for count in (0, 1, 90):
        corners = rng.uniform(0, 20, (2, count, 2))
        boxes = np.concatenate([corners, corners + rng.uniform(-3, 3, (2, count, 2))], 2)
        feeds = {
            "boxes": boxes.astype("float32"),
            "scores": rng.integers(0, 20, (2, 3, count)).astype("float32") / 20,
        }
        np.testing.assert_array_equal(run(feeds)[0], reference(feeds)[0])


def test_levels_of_a_pyramid_meet_at_sizes_that_only_running_tells(model, rng):
    nodes = [
        NODE("MaxPool", ["x"], ["low"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        NODE("Shape", ["x"], ["size"]),
        NODE("Resize", ["low", "", "", "size"], ["high"], **NEAREST),
        NODE("Add", ["x", "high"], ["y"]),
    ]
    run, reference = both(model(nodes, {"x": (1, 2, "h", "w")}, ["y"], opset=13))
    for size in ((4, 6), (5, 7)):
        feeds = {"x": rng.normal(size=(1, 2, *size)).astype("float32")}
        np.testing.assert_allclose(run(feeds)[0], reference(feeds)[0], rtol=1e-6)


NEAREST = {
    "mode": "nearest",
    "nearest_mode": "floor",
    "coordinate_transformation_mode": "asymmetric",
}


def test_the_k_largest_of_any_number_where_running_tells_k(model, rng):
    nodes = [NODE("TopK", ["x", "k"], ["values", "places"])]
    dtypes = {"k": TensorProto.INT64, "places": TensorProto.INT64}
    proto = model(nodes, {"x": (3, "n"), "k": (1,)}, ["values", "places"], dtypes=dtypes)
    run, reference = both(proto)
    for count, k in ((7, 3), (5, 5), (4, 0)):
        feeds = {"x": rng.integers(0, 4, (3, count)).astype("float32"), "k": np.array([k])}
        for found, expected in zip(run(feeds), reference(feeds), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_convolutions_of_any_number_of_windows_are_products(model, rng):
    nodes = [
        NODE("Gather", ["x", "places"], ["some"]),
        NODE("Conv", ["some", "w", "b"], ["wide"], pads=[1, 0, 1, 2], dilations=[1, 2]),
        NODE("Relu", ["wide"], ["r"]),
        NODE("Conv", ["r", "v"], ["small"], strides=[2, 1]),
        NODE("ConvTranspose", ["small", "u"], ["y"], strides=[2, 2]),
    ]
    weights = {
        name: rng.normal(size=shape).astype("float32")
        for name, shape in {
            "w": (8, 3, 3, 2),
            "b": (8,),
            "v": (4, 8, 1, 1),
            "u": (4, 5, 2, 2),
        }.items()
    }
    inputs = {"x": (6, 3, "h", "w_"), "places": ("n",)}
    proto = model(nodes, inputs, ["y"], weights, dtypes={"places": TensorProto.INT64})
    mod, params = from_onnx(proto)
    lib = relay.build(mod, "llvm", params=params)
    assert any(kernel.implementation == "dense_packed.x86" for kernel in lib.report.kernels)
    run, reference = both(proto)
    for count, size in ((1, (5, 7)), (4, (8, 6)), (0, (5, 7))):
        feeds = {
            "x": rng.normal(size=(6, 3, *size)).astype("float32"),
            "places": rng.integers(0, 6, count),
        }
        found, expected = run(feeds)[0], reference(feeds)[0]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
