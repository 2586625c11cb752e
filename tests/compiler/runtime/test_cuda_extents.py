"""Operators on a mocked GPU: empty tensors, and results whose size depends on data."""

import json

import numpy as np
import pytest

from tests import cuda_mock
from tests.ptx import ptxas

pytestmark = pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)

# Prints a line for each operator: its name, results of GPU and CPU, and what was wrong.
CASES = """
import json
import numpy as np
import tvm
from onnx import helper, numpy_helper
from compiler import relay
from compiler.runtime import graph_executor
from tests.cuda_mock.device import Device

device = Device(races=True)

def run(make, xs, target, gpu, is_open):
    shapes = [(relay.Any(), *x.shape[1:]) if is_open else x.shape for x in xs]
    names = [f"x{index}" for index in range(len(xs))]
    inputs = [relay.var(n, shape=s, dtype=str(x.dtype)) for n, s, x in zip(names, shapes, xs)]
    mod = tvm.IRModule.from_expr(relay.Function(inputs, make(*inputs)))
    executor = graph_executor.GraphModule(relay.build(mod, target=target)["default"](gpu))
    executor.run(**dict(zip(names, xs)))
    return executor.get_output(0).numpy()

def check(name, make, *xs, is_open=True):
    device.problems.clear()
    device.errors.clear()
    found = run(make, xs, "cuda -arch=sm_90", tvm.cuda(0), is_open)
    report(name, found, run(make, xs, "llvm", tvm.cpu(), is_open))

def report(name, found, expected):
    print(json.dumps({
        "name": name,
        "shapes": [found.shape, expected.shape],
        "results": [found.tolist(), expected.tolist()],
        "wrong": [*map(str, device.problems), *map(repr, device.errors)],
    }))

def data(*shape):
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")

ones = relay.const(np.ones(16, "float32"))
def check_gru(steps, batch):  # "new" is a C++ keyword
    weights = {"w": data(1, 15, 4), "r": data(1, 15, 5)}
    graph = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=5)],
        "layer",
        [helper.make_tensor_value_info("x", 1, (steps, batch, 4))],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    mod, params = relay.frontend.from_onnx(
        helper.make_model(graph, opset_imports=[opset], ir_version=10)
    )
    results = []
    device.problems.clear()
    for target, gpu in (("cuda -arch=sm_90", tvm.cuda(0)), ("llvm", tvm.cpu())):
        library = relay.build(mod, target=target, params=params)
        executor = graph_executor.GraphModule(library["default"](gpu))
        executor.run(x=data(3, 2, 4))
        results.append(executor.get_output(0).numpy())
    report(f"gru {steps} {batch}", *results)

for steps, batch in ((3, "b"), ("new", 2), ("new", "b")):
    check_gru(steps, batch)
halves = [data(1, 64, 20, 20).astype("float16") + 1, data(64, 1, 3, 3).astype("float16") + 1]
check(
    "depthwise halves",
    lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1), groups=64, channels=64, kernel_size=(3, 3)),
    *halves,
    is_open=False,
)
check("softmax", relay.nn.softmax, data(0, 5))
check("transpose", lambda x: relay.transpose(x, (0, 2, 1)), data(0, 64, 64))
check("matmul", relay.nn.batch_matmul, data(0, 8, 16), data(0, 8, 16))
check("norm", lambda x: relay.nn.layer_norm(x, ones, ones), data(0, 16))
check("sort", relay.argsort, data(0, 9))
check("greatest", lambda x: relay.topk(x, k=2, ret_type="values"), data(0, 9))
check("sums", lambda x: relay.cumsum(x, axis=1), data(0, 9))
check("unread", lambda x, y: relay.abs(x), data(3, 4), data(0), is_open=False)
check("exclusive sums", lambda x: relay.cumsum(x, axis=1, exclusive=True), data(3, 9))
check("products", lambda x: relay.cumprod(x, axis=0), data(5, 3))
check("places", lambda x: relay.argwhere(relay.greater(x, relay.const(0.0))), data(4, 6))
"""
NAMES = (
    *("softmax", "transpose", "matmul", "norm", "sort", "greatest", "sums", "unread"),
    *(
        "depthwise halves",
        "exclusive sums",
        "products",
        "places",
        "gru 3 b",
        "gru new 2",
        "gru new b",
    ),
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Line of each case, by name."""
    home = cuda_mock.make_home(tmp_path_factory.mktemp("cuda") / "home", ptxas.NVCC)
    lines = [json.loads(line) for line in cuda_mock.run(CASES, home) if line.startswith("{")]
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_a_cpu_and_kernels_stay_within_their_tensors(ran, name):
    """Also the sums of halves, which CPUs and GPUs add in float32."""
    said = ran[name]
    assert said["wrong"] == []
    assert said["shapes"][0] == said["shapes"][1]
    np.testing.assert_allclose(*said["results"], rtol=1e-5, atol=1e-6)
