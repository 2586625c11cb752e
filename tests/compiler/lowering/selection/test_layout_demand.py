"""Values that convolutions read after other operators are blocked where they are made."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import tvm

from compiler import PassContext, relay
from compiler.runtime import graph_executor

TARGET = "llvm -mcpu=x86-64-v3"
# The head of a segmentation network: tokens as images, the smaller ones resized, side by side.
HEAD = """<ir_version: 8, opset_import: ["": 17]>
head (float[1,64,CHANNELS] a, float[1,16,32] b, float[48,SUM,1,1] w) => (float[1,48,8,8] y OUT)
    <int64[4] large = {1, CHANNELS, 8, 8}, int64[4] small = {1, 32, 4, 4},
     float[4] twice = {1.0, 1.0, 2.0, 2.0}>
    { at = Transpose<perm = [0, 2, 1]>(a)
      ai = Reshape(at, large)
      bt = Transpose<perm = [0, 2, 1]>(b)
      bi = Reshape(bt, small)
      br = Resize<mode = "linear">(bi, , twice)
      c = Concat<axis = 1>(ai, br)
      y = Conv<kernel_shape = [1, 1]>(c, w) }"""


@pytest.mark.parametrize(
    ("channels", "result", "is_blocked_first"),
    [
        pytest.param(32, "", True, id="read by a convolution alone"),
        pytest.param(32, ", float[1,64,8,8] c", False, id="a result as well"),
        pytest.param(20, "", False, id="channels that fill no block"),
    ],
)
def test_parts_of_a_concatenation_are_blocked(channels, result, is_blocked_first):
    text = HEAD.replace("CHANNELS", str(channels)).replace("SUM", str(channels + 32))
    proto = onnx.parser.parse_model(text.replace(" OUT", result))
    rng = np.random.default_rng(0)
    shapes = {"a": (1, 64, channels), "b": (1, 16, 32), "w": (48, channels + 32, 1, 1)}
    feeds = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    weight = proto.graph.input.pop()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop("w"), weight.name))
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )

    with PassContext(opt_level=3):
        library = relay.build(relay.frontend.from_onnx(proto)[0], TARGET)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(**feeds)
    for index, expected in enumerate(session.run(None, feeds)):
        np.testing.assert_allclose(module.get_output(index).numpy(), expected, 1e-5, 1e-5)
    changes = [each.operators for each in library.report.kernels if "_block" in each.operators]
    late = [
        each
        for each in changes
        if each[0] == "_block" or "concatenate" in each[: each.index("_block")]
    ]
    assert bool(late) != is_blocked_first
