"""An imported network of halves on a mocked GPU: windows in vectors, rows in a kernel each."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import cuda_mock
from tests.ptx import ptxas

pytestmark = pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None,
    reason="needs a C compiler and nvcc",
)

CASE = """
import json, sys
import numpy as np
import onnx
import tvm
from compiler import relay
from compiler.runtime import graph_executor
from tests.cuda_mock.device import Device

device = Device(races=True)
mod, params = relay.frontend.from_onnx(onnx.load(sys.argv[1]))
with tvm.transform.PassContext(opt_level=3):
    library = relay.build(mod, target="cuda -arch=sm_90", params=params)
module = graph_executor.GraphModule(library["default"](tvm.cuda(0)))
module.run(x=np.load(sys.argv[2]))
print(json.dumps({
    "result": module.get_output(0).numpy().tolist(),
    "rules": [kernel.implementation for kernel in library.report.kernels],
    "problems": [str(problem) for problem in device.problems],
    "errors": [repr(error) for error in device.errors],
}))
"""
CHANNELS = 64


def network():
    """A depthwise convolution of 34 by 34 pixels, their mean, a product and a softmax."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.uniform(-1, 1, (CHANNELS, 1, 3, 3)),
        "b": rng.uniform(-1, 1, CHANNELS),
        "v": rng.uniform(-1, 1, (CHANNELS, 24)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], group=CHANNELS),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    kind = TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, (1, CHANNELS, 34, 34))],
        [helper.make_tensor_value_info("y", kind, (1, 24))],
        [numpy_helper.from_array(value.astype("float16"), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_a_network_is_right_and_its_kernels_do_nothing_wrong(tmp_path):
    home = cuda_mock.make_home(tmp_path / "home", ptxas.NVCC)
    x = np.random.default_rng(1).uniform(-1, 1, (1, CHANNELS, 34, 34)).astype("float16")
    model, data = str(tmp_path / "network.onnx"), str(tmp_path / "x.npy")
    onnx.save(network(), model)
    np.save(data, x)
    (line,) = cuda_mock.run(CASE, home, model, data)
    said = json.loads(line)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    assert said["problems"] == said["errors"] == []
    np.testing.assert_allclose(said["result"], expected, rtol=2e-2, atol=2e-3)
    assert {"cuda.windows", "cuda.row_reductions"} <= set(said["rules"])
