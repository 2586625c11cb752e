"""Writes a small network of convolutions as an ONNX file."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
weights = {
    "first": rng.standard_normal((16, 3, 3, 3)) * 0.2,
    "second": rng.standard_normal((16, 16, 3, 3)) * 0.1,
    "classes": rng.standard_normal((10, 16)) * 0.3,
    "bias": rng.standard_normal(10),
}
around = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["data", "first"], ["a"], **around),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], **around),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "classes", "bias"], ["scores"], transB=1),
    ],
    "small",
    [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 32, 32])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
    [numpy_helper.from_array(value.astype("float32"), name) for name, value in weights.items()],
)
opsets = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), sys.argv[1])
