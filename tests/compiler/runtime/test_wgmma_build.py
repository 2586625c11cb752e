"""A build for Hopper's own instructions, exported, loaded and run on the mocked GPU."""

import json

import pytest

from tests import cuda_mock
from tests.ptx import ptxas

SCRIPT = """
import json, sys
import numpy as np, tvm
from tests.cuda_mock.device import Device
device = Device(races=True)
from compiler import relay
from compiler.runtime import graph_executor, load_module

rng = np.random.default_rng(0)
x, w = (rng.uniform(-1, 1, (2048, 128)).astype("float16") for _ in range(2))
bias = rng.uniform(-1, 1, 2048).astype("float16")
data = relay.var("x", shape=x.shape, dtype="float16")
y = relay.nn.bias_add(relay.nn.dense(data, relay.const(w)), relay.const(bias))
mod = tvm.IRModule.from_expr(relay.Function([data], relay.nn.relu(y)))
library = relay.build(mod, target="cuda")
library.export_library(sys.argv[1])
module = graph_executor.GraphModule(load_module(sys.argv[1])["default"](tvm.cuda(0)))
module.run(x=x)
found = module.get_output(0).numpy().astype("float64")
wanted = np.maximum(x.astype("float64") @ w.astype("float64").T + bias, 0)
print(json.dumps({
    "difference": np.abs(found - wanted).max() / wanted.max(),
    "kernels": [each.kernel for each in device.launches],
    "wgmma": sorted({"wgmma.mma_async" in each.image for each in device.launches}),
    "problems": [str(each) for each in device.problems],
    "errors": [str(each) for each in device.errors],
}))
"""


KERNELS = ["copy_into_graph_0_kernel", "fused_matmul_add_relu_kernel", "copy_into_graph_1_kernel"]


@pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)
def test_a_large_product_of_a_plain_cuda_target_runs_on_a_hopper(tmp_path):
    home = cuda_mock.make_home(tmp_path / "home", ptxas.NVCC)
    lines = cuda_mock.run(SCRIPT, home, str(tmp_path / "library.so"))
    said = json.loads(lines[-1])
    assert (said["problems"], said["errors"]) == ([], [])
    assert (said["wgmma"], said["kernels"]) == ([True], KERNELS)
    assert said["difference"] < 1e-3
