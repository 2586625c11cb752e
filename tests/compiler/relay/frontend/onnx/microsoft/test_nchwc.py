"""Models in the blocked layout that onnxruntime's layout optimization writes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from compiler import errors
from compiler.relay.frontend import from_onnx

NODE = helper.make_node


@pytest.fixture
def blocked(model, tmp_path):
    """A model as onnxruntime has it for this CPU."""

    def optimize(nodes, shape, weights):
        proto = model(nodes, {"x": shape}, ["y"], weights)
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "blocked.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        optimized = onnx.load(options.optimized_model_filepath)
        used = {node.op_type for node in optimized.graph.node if node.domain.endswith("nchwc")}
        if not used:
            pytest.skip("onnxruntime has no blocked layout for this CPU")
        return proto, optimized, used

    return optimize


def test_blocked_models_agree(blocked, run, floats):
    nodes = [
        NODE("Conv", ["x", "w0", "b0"], ["a0"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["a0"], ["a"]),
        NODE("Conv", ["a", "w1"], ["c"], group=32, pads=[1, 1, 1, 1]),
        NODE("LeakyRelu", ["c"], ["d"], alpha=0.2),
        NODE("Conv", ["d", "w2", "b0"], ["e0"]),
        NODE("Add", ["e0", "a"], ["e1"]),
        NODE("Relu", ["e1"], ["e"]),
        NODE("MaxPool", ["e"], ["f"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
        NODE("AveragePool", ["f"], ["g"], kernel_shape=[2, 2], strides=[1, 1]),
        NODE("Conv", ["g", "w3"], ["h"]),
        NODE(
            "Resize",
            ["h", "", "s"],
            ["i"],
            coordinate_transformation_mode="asymmetric",
            mode="nearest",
            nearest_mode="floor",
        ),
        NODE("GlobalAveragePool", ["i"], ["y"]),
    ]
    weights = {
        "w0": floats(32, 3, 3, 3),
        "b0": floats(32),
        "w1": floats(32, 1, 3, 3),
        "w2": floats(32, 32, 1, 1),
        "w3": floats(24, 32, 1, 1),
        "s": np.array([1, 1, 2, 2], "float32"),
    }
    proto, optimized, used = blocked(nodes, (1, 3, 6, 6), weights)
    assert {"Conv", "MaxPool", "AveragePool", "ReorderOutput"} <= used
    feeds = {"x": floats(1, 3, 6, 6)}
    (plain,) = run(*from_onnx(proto), feeds)
    for freeze in (True, False):
        (result,) = run(*from_onnx(optimized, freeze_params=freeze), feeds)
        np.testing.assert_allclose(result, plain, 1e-4, 1e-4)


def test_channels_of_the_input_are_brought_to_whole_blocks(blocked, run, floats):
    nodes = [NODE("Sigmoid", ["x"], ["a"]), NODE("Conv", ["a", "w"], ["y"])]
    proto, optimized, used = blocked(nodes, (1, 20, 3, 3), {"w": floats(24, 20, 1, 1)})
    assert "ReorderInput" in used
    feeds = {"x": floats(1, 20, 3, 3)}
    np.testing.assert_allclose(
        run(*from_onnx(optimized), feeds)[0], run(*from_onnx(proto), feeds)[0], 1e-4, 1e-4
    )


def test_blocks_of_unknown_size_are_refused(blocked, floats):
    nodes = [NODE("Conv", ["x", "w"], ["y"])]
    _, optimized, _ = blocked(nodes, (1, 3, 3, 3), {"w": floats(32, 3, 1, 1)})
    with pytest.raises(errors.UnsupportedOperatorError, match="ORT_ENABLE_EXTENDED"):
        from_onnx(optimized)
