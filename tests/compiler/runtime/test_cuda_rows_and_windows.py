"""Imported networks in halves on a mocked GPU: windows in vectors, rows in a kernel each."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import cuda_mock
from tests.ptx import ptxas

pytestmark = pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)

CASE = """
import json, sys
import numpy as np
import onnx
import tvm
from compiler import relay
from compiler.lowering.bind import bind_params
from compiler.runtime import graph_executor
from tests.cuda_mock.device import Device

device = Device(races=True)
mod, params = relay.frontend.from_onnx(onnx.load(sys.argv[1]))
if "mixed" in sys.argv:
    mod = relay.transform.InferType()(bind_params(mod, params)[0])
    mod, params = relay.transform.ToMixedPrecision("float16")(mod), {}
with tvm.transform.PassContext(opt_level=3):
    library = relay.build(mod, target="cuda -arch=sm_90", params=params)
module = graph_executor.GraphModule(library["default"](tvm.cuda(0)))
module.run(x=np.load(sys.argv[2]))
print(json.dumps({
    "result": module.get_output(0).numpy().tolist(),
    "kernels": [launch.kernel for launch in device.launches],
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


def residual():
    """norm(x) + norm(x) @ w, where the product is in half once it is rounded."""
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(-1, 1, 48).astype("float32") for name in ("gamma", "beta")}
    weights["w"] = rng.uniform(-0.2, 0.2, (48, 48)).astype("float32")
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["n"]),
        helper.make_node("MatMul", ["n", "w"], ["p"]),
        helper.make_node("Add", ["n", "p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 9, 48))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 9, 48))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def norm_before_residual():
    """y = x v and y + norm(y) w, where the k of v is divided among blocks."""
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(-1, 1, 48).astype("float32") for name in ("gamma", "beta")}
    weights["v"] = rng.uniform(-0.1, 0.1, (1024, 48)).astype("float32")
    weights["w"] = rng.uniform(-0.2, 0.2, (48, 48)).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "gamma", "beta"], ["n"]),
        helper.make_node("MatMul", ["n", "w"], ["p"]),
        helper.make_node("Add", ["p", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "norm_before_residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 9, 1024))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 9, 48))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def ran(folder, model, x, *options):
    """What the model computed on the mocked GPU, and what onnxruntime computes."""
    home = cuda_mock.make_home(folder / "home", ptxas.NVCC)
    path, data = str(folder / "network.onnx"), str(folder / "x.npy")
    onnx.save(model, path)
    np.save(data, x)
    (line,) = cuda_mock.run(CASE, home, path, data, *options)
    said = json.loads(line)
    assert said["problems"] == said["errors"] == []
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    return said, expected


def test_a_network_is_right_and_its_kernels_do_nothing_wrong(tmp_path):
    x = np.random.default_rng(1).uniform(-1, 1, (1, CHANNELS, 34, 34)).astype("float16")
    said, expected = ran(tmp_path, network(), x)
    np.testing.assert_allclose(said["result"], expected, rtol=2e-2, atol=2e-3)
    assert {"cuda.windows", "cuda.row_reductions"} <= set(said["rules"])


def test_a_norm_that_is_read_in_both_types_is_one_kernel(tmp_path):
    x = np.random.default_rng(1).uniform(-1, 1, (2, 9, 48)).astype("float32")
    said, expected = ran(tmp_path, residual(), x, "mixed")
    np.testing.assert_allclose(said["result"], expected, rtol=1e-2, atol=1e-2)
    assert said["rules"] == ["cuda.row_reductions", "cuda.tensor_cores"]
    kernels = [name for name in said["kernels"] if "copy_into_graph" not in name]
    assert len(kernels) == 2


@pytest.mark.parametrize(("options", "tolerance"), [((), 1e-5), (("mixed",), 1e-2)])
def test_the_kernel_of_a_norm_adds_the_parts_of_a_matmul_and_writes_their_sum(
    options, tolerance, tmp_path
):
    x = np.random.default_rng(1).uniform(-1, 1, (1, 9, 1024)).astype("float32")
    said, expected = ran(tmp_path, norm_before_residual(), x, *options)
    np.testing.assert_allclose(said["result"], expected, rtol=tolerance, atol=tolerance)
    assert said["rules"][-2:] == 2 * ["cuda.tensor_cores" if options else "cuda.float32_products"]
    kernels = [name for name in said["kernels"] if "copy_into_graph" not in name]
    assert len(kernels) == (4 if options else 3)  # one rounds x
