"""Attention of imported models on a mocked GPU: one kernel between two products."""

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
HEADS, LENGTH, ROWS = 2, 16, 20
TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "any number of rows": 1e-5}

CASES = """
import json, sys
import numpy as np
import onnx
import tvm
from compiler import relay
from compiler.runtime import graph_executor
from tests.cuda_mock.device import Device

device = Device(races=True)
x = np.load(sys.argv[1])
for path in sys.argv[2:]:
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="cuda -arch=sm_90", params=params)
    device.launches.clear()
    device.problems.clear()
    module = graph_executor.GraphModule(library["default"](tvm.cuda(0)))
    dtype = "float16" if "float16" in path else "float32"
    module.run(x=x.astype(dtype))
    print(json.dumps({
        "result": module.get_output(0).numpy().tolist(),
        "kernels": [k for k in device.kernels() if not k.startswith("copy_into_graph")],
        "problems": [str(problem) for problem in device.problems],
        "errors": [repr(error) for error in device.errors],
    }))
"""


def attention(dtype="float32", rows=ROWS):
    """x (1, rows, 24) -> queries, keys, values -> heads -> causal attention -> (1, rows, 8)."""
    rng = np.random.default_rng(0)
    width = HEADS * LENGTH
    split = np.array([1, -1, HEADS, LENGTH], "int64")
    constants = {"split": split, "join": np.array([1, -1, width], "int64")}
    for name in "qkv":
        constants[f"w{name}"] = rng.uniform(-0.5, 0.5, (24, width)).astype(dtype)
        constants[f"b{name}"] = rng.uniform(-0.5, 0.5, width).astype(dtype)
    constants["wo"] = rng.uniform(-0.5, 0.5, (width, 8)).astype(dtype)
    constants["scale"] = np.array(0.25, dtype)
    constants["mask"] = np.where(np.tri(ROWS), 0, -np.inf).astype(dtype)
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            helper.make_node("Add", [f"{name}0", f"b{name}"], [f"{name}1"]),
            helper.make_node("Reshape", [f"{name}1", "split"], [f"{name}2"]),
            helper.make_node("Transpose", [f"{name}2"], [name], perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["s0"]),
        helper.make_node("Mul", ["s0", "scale"], ["s1"]),
        helper.make_node("Add", ["s1", "mask"], ["s2"]),
        helper.make_node("Softmax", ["s2" if rows == ROWS else "s1"], ["p"], axis=3),
        helper.make_node("MatMul", ["p", "v"], ["o0"]),
        helper.make_node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o1", "join"], ["o2"]),
        helper.make_node("MatMul", ["o2", "wo"], ["y"]),
    ]
    if rows != ROWS:
        nodes = [node for node in nodes if node.output[0] != "s2"]
    kind = TensorProto.FLOAT if dtype == "float32" else TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", kind, (1, rows, 24))],
        [helper.make_tensor_value_info("y", kind, (1, rows, 8))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each model computed, and what it should compute."""
    folder = tmp_path_factory.mktemp("attention")
    home = cuda_mock.make_home(folder / "home", ptxas.NVCC)
    x = np.random.default_rng(1).uniform(-1, 1, (1, ROWS, 24)).astype("float32")
    np.save(folder / "x.npy", x)
    models = {
        "float32": attention(),
        "float16": attention("float16"),
        "any number of rows": attention(rows="n"),
    }
    for name, model in models.items():
        onnx.save(model, folder / f"{name}.onnx")
    paths = [str(folder / f"{name}.onnx") for name in models]
    lines = cuda_mock.run(CASES, home, str(folder / "x.npy"), *paths)
    cases = dict(zip(models, map(json.loads, lines), strict=True))
    for name, path in zip(models, paths, strict=True):
        dtype = "float16" if name == "float16" else "float32"
        session = onnxruntime.InferenceSession(path)
        cases[name]["expected"] = session.run(None, {"x": x.astype(dtype)})[0]
    return cases


@pytest.mark.parametrize("case", TOLERANCE)
def test_attention_is_right_and_does_nothing_wrong(ran, case):
    said, tolerance = ran[case], TOLERANCE[case]
    assert said["problems"] == said["errors"] == []
    np.testing.assert_allclose(said["result"], said["expected"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", ["float32", "float16"])
def test_it_is_one_kernel_between_two_products(ran, case):
    # CUDA graphs have copies of their own at both ends.
    kernels = [name for name in ran[case]["kernels"] if "copy_into_graph" not in name]
    assert len(kernels) == 3
    assert "attention" in kernels[1]


def test_with_any_number_of_rows_it_is_one_kernel(ran):
    assert any("attention" in kernel for kernel in ran["any number of rows"]["kernels"])
