"""Whole CUDA builds on a mocked GPU: TVM's CUDA runtime and VM, nvcc's PTX in the interpreter."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE
from tests import cuda_mock
from tests.ptx import ptxas

pytestmark = pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)

# Every case prints what it computed, and what was launched for it.
CASES = """
import json, sys
import numpy as np
import onnx
import tvm
from compiler import relay
from compiler.lowering.codegen import memory_planner
from compiler.partition import Strategy, partition, register
from compiler.runtime import graph_executor, load_module
from tests.cuda_mock.device import Device

device = Device(races=True)
model = onnx.load(sys.argv[1])
x = np.load(sys.argv[2])

def claim(graph_json, ids, options):
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        if node["op"] in ("nn.softmax", "sqrt"):
            ids[index] = -1

def accept(subgraph_json, subgraph_id, options, attrs, args, aux):
    attrs["target"] = "llvm"
    return True

def build(split=False, **config):
    mod, params = relay.frontend.from_onnx(model)
    if split:
        mod = partition(mod, "on_the_cpu", params)
    with tvm.transform.PassContext(opt_level=3, config=config):
        return relay.build(mod, target="cuda -arch=sm_90", params=params)

def run(name, library, rounds=1):
    device.launches.clear()
    graphs = device.graphs
    module = graph_executor.GraphModule(library["default"](tvm.cuda(0)))
    right = {}
    if name == "graphs":  # run with other weights first, which the graph then has
        for index, info in enumerate(library.metadata.params, start=1):
            right[info.name] = module.get_input(index).numpy()
            wrong = tvm.runtime.tensor(np.zeros_like(right[info.name]), tvm.cuda(0))
            module.set_input_zero_copy(info.name, wrong)
    allocated, launched = [], []
    for _ in range(rounds):
        before = device.allocations(), len(device.launches)
        module.run(x=x)
        allocated.append(device.allocations() - before[0])
        launched.append(len(device.launches) - before[1])
    for weight, value in right.items():
        module.set_input(weight, value)
        module.run(x=x)
    said = {
        "case": name,
        "result": module.get_output(0).numpy().tolist(),
        "launches": len(device.launches),
        "graphs": device.graphs - graphs,
        "allocated": allocated,
        "launched": launched,
        "activations": library.metadata.report["activations_bytes"],
        "cache": library.metadata.report["cache"],
        "notes": library.metadata.report["notes"],
        "problems": [str(problem) for problem in device.problems],
        "errors": [repr(error) for error in device.errors],
    }
    print(json.dumps(said))

plain = build(**{"relax.backend.use_cuda_graph": False})
run("plain", plain)
plain.export_library(sys.argv[3])
run("exported", load_module(sys.argv[3]))
run("graphs", build(), rounds=4)
run("kept", build())
register("on_the_cpu", Strategy("softmax", claim, accept))
run("heterogeneous", build(split=True))
run("heterogeneous kept", build(split=True))
memory_planner.LEAST_SAVED_BYTES = 0
run("packed", build(split=True, **{"tirx.disable_assert": True}))  # which the cache does not have

for name, path in zip(("sort", "scan", "boxes", "lowest", "loop"), sys.argv[4:]):
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    device.problems.clear()
    run(name, relay.build(mod, target="cuda -arch=sm_90", params=params))
"""

# What a second process takes from the cache of the first one.
ELSEWHERE = CASES.partition("plain = ")[0] + 'run("elsewhere", build())'


def network():
    rng = np.random.default_rng(0)
    weights = {"w": (6, 3, 3, 3), "b": (6,), "v": (6 * 25, 7)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
        helper.make_node("Sqrt", ["s"], ["y"]),
    ]
    values = [
        numpy_helper.from_array(rng.uniform(-1, 1, shape).astype("float32"), name)
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 10, 10))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 7))],
        values,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def sort():
    """The greatest three of each row, and where they are."""
    nodes = [
        helper.make_node("TopK", ["x", "three"], ["v", "i"], axis=3),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["v", "f"], ["y"], axis=3),
    ]
    return of_rows(nodes, numpy_helper.from_array(np.array([3], "int64"), "three"), 6)


def scan():
    """The running sums of each row."""
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["y"])]
    return of_rows(nodes, numpy_helper.from_array(np.array(3, "int64"), "axis"), 10)


def boxes():
    """Boxes of a fixed place each: those that stay beside others, with the data as scores."""
    corners = np.arange(100).reshape(1, 100, 1) // 3 + np.array([0.0, 0.0, 4.0, 4.0])
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["s"]),
        helper.make_node("NonMaxSuppression", ["corners", "s", "most", "iou"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {
        "shape": np.array([2, 3, 100], "int64"),
        "corners": np.repeat(corners, 2, axis=0).astype("float32"),
        "most": np.array([5], "int64"),
        "iou": np.array([0.3], "float32"),
    }
    return of_shape(nodes, constants, ("n", 3))


def lowest():
    """The greatest of negative infinities, along each axis."""
    nodes = [
        helper.make_node("Mul", ["x", "nothing"], ["zero"]),
        helper.make_node("Abs", ["zero"], ["positive"]),
        helper.make_node("Log", ["positive"], ["infinite"]),
        helper.make_node("ReduceMax", ["infinite"], ["of_row"], axes=[3]),
        helper.make_node("ReduceMax", ["infinite"], ["of_column"], axes=[2]),
        helper.make_node("MaxPool", ["infinite"], ["of_window"], kernel_shape=[3, 3]),
        helper.make_node("ReduceMax", ["of_window"], ["of_windows"]),
        helper.make_node("Add", ["of_row", "of_column"], ["sum"]),
        helper.make_node("Add", ["sum", "of_windows"], ["y"]),
    ]
    return of_shape(nodes, {"nothing": np.array(0, "float32")}, (2, 3, 10, 10))


def loop():
    """A product in a loop, of the last row that the loop has computed."""
    body = helper.make_graph(
        [
            helper.make_node("Slice", ["rows", "last", "end", "one"], ["first"]),
            helper.make_node("MatMul", ["first", "square"], ["product"]),
            helper.make_node("ReduceMean", ["product"], ["mean"], axes=[1], keepdims=1),
            helper.make_node("Concat", ["rows", "mean"], ["more"], axis=1),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, (1, "n", 10)),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, (1, "m", 10)),
        ],
    )
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["start"], axes=[0, 1, 2], keepdims=0),
        helper.make_node("Reshape", ["start", "shape"], ["begin"]),
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Ceil", ["most"], ["whole"]),  # 1, known only at run time
        helper.make_node("Cast", ["whole"], ["once"], to=TensorProto.INT64),
        helper.make_node("Mul", ["once", "three"], ["times"]),
        helper.make_node("Loop", ["times", "", "begin"], ["y"], body=body),
    ]
    constants = {
        "one": np.array([1], "int64"),
        "shape": np.array([1, 1, 10], "int64"),
        "last": np.array([-1], "int64"),
        "end": np.array([1 << 60], "int64"),
        "three": np.array(3, "int64"),
        "square": np.random.default_rng(2).uniform(-1, 1, (10, 10)).astype("float32"),
    }
    return of_shape(nodes, constants, (1, "m", 10))


def of_rows(nodes, constant, width):
    return of_shape(nodes, {constant.name: numpy_helper.to_array(constant)}, (2, 3, 10, width))


def of_shape(nodes, constants, shape):
    graph = helper.make_graph(
        nodes,
        "nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 10, 10))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each case printed, and what it should compute."""
    folder = tmp_path_factory.mktemp("cuda")
    home = cuda_mock.make_home(folder / "home", ptxas.NVCC)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 3, 10, 10)).astype("float32")
    models = {
        "network": network(),
        "sort": sort(),
        "scan": scan(),
        "boxes": boxes(),
        "lowest": lowest(),
        "loop": loop(),
    }
    for name, model in models.items():
        onnx.save(model, folder / f"{name}.onnx")
    np.save(folder / "x.npy", x)
    names = ("x.npy", "network.so", *(f"{name}.onnx" for name in models if name != "network"))
    files = [str(folder / name) for name in ("network.onnx", *names)]
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), LIMIT_VARIABLE: str(1 << 30)}
    printed = cuda_mock.run(CASES, home, *files, **environment)
    printed += cuda_mock.run(ELSEWHERE, home, *files, **environment)
    lines = [json.loads(line) for line in printed]
    expected = {
        name: onnxruntime.InferenceSession(str(folder / f"{name}.onnx")).run(None, {"x": x})[0]
        for name in models
    }
    cases = {line["case"]: line for line in lines}
    for name, said in cases.items():
        said["expected"] = expected.get(name, expected["network"])
    return cases


@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "exported",
        "graphs",
        "kept",
        "heterogeneous",
        "heterogeneous kept",
        "packed",
        "elsewhere",
        "sort",
        "scan",
        "boxes",
        "lowest",
        "loop",
    ],
)
def test_a_build_computes_what_it_should_and_its_kernels_do_nothing_wrong(ran, case):
    said = ran[case]
    assert said["problems"] == said["errors"] == []
    np.testing.assert_allclose(said["result"], said["expected"], rtol=1e-5, atol=1e-6)


def test_an_exported_library_launches_the_same_kernels(ran):
    cases = ran
    assert cases["plain"]["launches"] == cases["exported"]["launches"] > 3
    assert cases["exported"]["graphs"] == 0


def test_all_kernels_are_replayed_as_one_graph_between_the_copies(ran):
    said, plain = ran["graphs"], ran["plain"]
    assert said["notes"] == ["launches are replayed as a CUDA graph"]
    assert said["graphs"] == 3  # runs only launch at first, and with each new weight
    assert said["launched"] == [plain["launched"][0] + 2] * 4


def test_runs_behind_the_first_two_allocate_nothing(ran):
    """The virtual machine keeps the last result until the next one is there: two buffers."""
    assert ran["graphs"]["allocated"][2:] == [0, 0]


def test_a_build_that_was_done_before_comes_from_the_cache(ran):
    pairs = ("graphs", "kept"), ("graphs", "elsewhere"), ("heterogeneous", "heterogeneous kept")
    for first, again in pairs:
        assert ran[first]["cache"] != ran[again]["cache"] == "the library"
        assert ran[first]["notes"] == ran[again]["notes"]


def test_what_does_not_run_on_one_device_alone_has_no_graph_and_says_so(ran):
    said = ran["heterogeneous"]
    assert said["notes"] == ["no CUDA graph: a part of the model runs on another device"]
    assert said["graphs"] == 0


def test_what_runs_on_the_cpu_is_not_launched(ran):
    cases = ran
    assert 0 < cases["heterogeneous"]["launches"] < cases["plain"]["launches"]


def test_tensors_of_a_gpu_beside_a_cpu_lie_in_one_storage(ran):
    apart, packed = ran["heterogeneous"], ran["packed"]
    assert packed["launches"] == apart["launches"]
    assert 0 < packed["activations"] < apart["activations"]
