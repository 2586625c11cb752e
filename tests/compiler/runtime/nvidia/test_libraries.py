"""The partitioners `cublaslt` and `cudnn`: builds that call NVIDIA's libraries, on mocked ones."""

import json

import pytest
import tvm

from compiler import relay
from compiler.errors import BuildError, LoadError
from compiler.partition import partition, subgraphs
from compiler.runtime import cuda_files
from compiler.runtime.nvidia.library import Library
from tests import cuda_mock
from tests.ptx import ptxas

pytestmark = pytest.mark.skipif(cuda_mock.COMPILER is None, reason="needs a C compiler")

# Every case is a network of layers that one library computes whole.
CASES = """
import json, sys
import ml_dtypes
import numpy as np
import tvm
import compiler
from compiler import relay
from compiler.partition import partition
from compiler.runtime import graph_executor, load_module
from tests.cuda_mock.device import Device

device, rng = Device(), np.random.default_rng(0)

def const(shape, dtype="float32"):
    return relay.const(values(shape, dtype))

def values(shape, dtype="float32"):
    if dtype == "int8":
        return rng.integers(-100, 100, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(np.dtype(dtype))

def var(shape, dtype="float32"):
    return relay.var("x", shape=shape, dtype=dtype)

def dense(dtype):
    x = var((5, 8), dtype)
    y = relay.nn.bias_add(relay.nn.dense(x, const((12, 8), dtype)), const((12,), dtype))
    return relay.nn.dense(relay.nn.relu(y), const((4, 12), dtype))

def stacked():
    x = var((3, 4, 8))
    square = relay.nn.batch_matmul(x, x)                       # (3, 4, 4)
    thin = relay.transpose(x, axes=(0, 2, 1))                  # read as it lies
    y = relay.nn.batch_matmul(square, thin)                    # (3, 4, 8)
    return relay.nn.batch_matmul(y, const((1, 6, 8)))          # one for all three

def rows():
    x = relay.reshape(var((2, 3, 8)), (6, 8))
    y = relay.nn.dense(x, relay.transpose(const((8, 4)), axes=(1, 0)))
    return relay.nn.relu(relay.add(relay.reshape(y, (2, 3, 4)), const((4,))))

def int8():
    return relay.nn.dense(var((5, 8), "int8"), const((12, 8), "int8"), out_dtype="int32")

def conv(dtype):
    y = relay.nn.conv2d(var((2, 4, 9, 8), dtype), const((6, 4, 3, 3), dtype), strides=(2, 1),
                        padding=(1, 1), dilation=(1, 2))
    y = relay.nn.relu(relay.nn.bias_add(y, const((6,), dtype)))
    y = relay.nn.conv2d(y, const((6, 3, 1, 1), dtype), groups=2)
    return relay.add(y, const((6, 1, 1), dtype))

def channels_last():
    y = relay.nn.conv2d(var((2, 9, 8, 4)), const((6, 3, 3, 4)), kernel_size=(3, 3), channels=6,
                        padding=(1, 1), data_layout="NHWC", kernel_layout="OHWI")
    return relay.nn.relu(relay.add(y, const((6,))))

NETWORKS = {
    "dense": (dense, "float32"), "half": (dense, "float16"), "bfloat16": (dense, "bfloat16"),
    "stacked": (stacked,), "rows": (rows,), "int8": (int8,),
    "conv": (conv, "float32"), "conv half": (conv, "float16"), "channels last": (channels_last,),
}

def network(name):
    make, *arguments = NETWORKS[name]
    body = make(*arguments)
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))

def expected(mod, x):
    module = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    module.run(x=x)
    return module.get_output(0).numpy().astype("float64")

def run(name, library, x, wanted, rounds=1):
    device.calls.clear()
    device.launches.clear()
    graphs = device.graphs
    module = graph_executor.GraphModule(library["default"](tvm.cuda(0)))
    for _ in range(rounds):
        module.run(x=x)
    found = module.get_output(0).numpy()
    difference = np.abs(found.astype("float64") - wanted).max() / max(1, np.abs(wanted).max())
    print(json.dumps({
        "case": name, "difference": float(difference), "dtype": str(found.dtype),
        "calls": [call.numbers for call in device.calls], "graphs": device.graphs - graphs,
        "launches": len(device.launches), "errors": [repr(error) for error in device.errors],
    }))

def build(claimed, graphs=False, precision="default"):
    # Without nvcc nothing can run but calls of the libraries: no graph, and its copies.
    config = {"relax.backend.use_cuda_graph": graphs, "baton.precision": precision}
    with compiler.PassContext(opt_level=3, config=config):
        return relay.build(claimed, "cuda -arch=sm_90")

for name in NETWORKS:
    mod = network(name)
    shape, dtype = mod["main"].params[0].ty.shape, mod["main"].params[0].ty.dtype
    x = values(tuple(int(each) for each in shape), str(dtype))
    wanted = expected(mod, x)
    backend = "cudnn" if name.startswith(("conv", "channels")) else "cublaslt"
    claimed = partition(mod, backend)
    library = build(claimed)
    run(name, library, x, wanted)
    if name in ("rows", "conv"):
        library.export_library(sys.argv[1])
        run(name + " loaded", load_module(sys.argv[1]), x, wanted)
        run(name + " tf32", build(claimed, precision="tf32"), x, wanted)
        if sys.argv[2] == "nvcc":
            run(name + " graph", build(claimed, graphs=True), x, wanted, rounds=3)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each case printed."""
    folder = tmp_path_factory.mktemp("nvidia")
    home = cuda_mock.make_home(folder / "home", ptxas.NVCC)
    cuda_mock.add_libraries(home)
    options = [str(folder / "library.so"), "nvcc" if ptxas.NVCC else ""]
    lines = map(json.loads, cuda_mock.run(CASES, home, *options))
    return {line["case"]: line for line in lines}


CUBLASLT_EPILOGUE, CUBLASLT_COMPUTE, CUDNN_MATH = 2, 3, -4
"""Which of the numbers of a call these are."""


@pytest.mark.parametrize(
    "case",
    [
        *("dense", "half", "bfloat16", "stacked", "rows", "rows loaded", "rows tf32", "int8"),
        *("conv", "conv loaded", "conv tf32", "conv half", "channels last"),
    ],
)
def test_the_libraries_compute_whole_networks(ran, case):
    said = ran[case]
    assert said["errors"] == []
    assert said["launches"] == 0
    rounding = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
    assert said["difference"] < 2 * rounding.get(said["dtype"], 5e-7)


def test_bias_and_relu_are_part_of_the_call(ran):
    assert [call[CUBLASLT_EPILOGUE] for call in ran["dense"]["calls"]] == [2 | 4, 1]
    assert [len(ran[case]["calls"]) for case in ("rows", "conv", "channels last")] == [1, 2, 1]


def test_float32_keeps_its_bits_unless_tf32_is_asked_for(ran):
    products = [ran[case]["calls"][0][CUBLASLT_COMPUTE] for case in ("rows", "rows tf32")]
    assert products == [68, 77]  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
    convolutions = [ran[case]["calls"][0][CUDNN_MATH] for case in ("conv", "conv tf32")]
    assert convolutions == [3, 0]  # CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH


@pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc for the copies around a graph")
def test_calls_are_captured_in_graphs(ran):
    for case in ("rows", "conv"):
        said = ran[f"{case} graph"]
        assert said["graphs"] == 2  # the first run captures one
        assert len(said["calls"]) == 3 * len(ran[case]["calls"])
        assert said["launches"] == 3 * 2  # the copies
        assert said["errors"] == []
        assert said["difference"] < 1e-6


def module_of(body):
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def convolution(**attrs):
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(4, 4, 3, 3))
    return relay.nn.conv2d(x, w, **attrs)


def product(rows, dtype="float32"):
    x = relay.var("x", shape=(rows, 8), dtype=dtype)
    return relay.nn.dense(x, relay.var("w", shape=(8, 8), dtype=dtype))


@pytest.mark.parametrize(
    ("backend", "body"),
    [
        ("cudnn", convolution(padding=(0, 0, 1, 1))),  # other padding at the end
        ("cudnn", convolution(kernel_layout="IOHW")),
        ("cudnn", product(4)),
        ("cublaslt", convolution()),
        ("cublaslt", product(4, "float64")),
        ("cublaslt", product(relay.Any())),
    ],
)
def test_what_a_library_does_not_compute_is_left_to_the_build(backend, body):
    assert subgraphs(partition(module_of(body), backend)) == []


def test_a_value_that_others_read_too_stays_outside():
    y = product(4)
    biased = relay.nn.bias_add(y, relay.var("b", shape=(8,)))
    (found,) = subgraphs(partition(module_of(relay.Tuple([biased, y])), "cublaslt"))
    assert found.operators == ("nn.dense",)


def test_cudnn_takes_a_relu_only_behind_a_bias():
    bare, biased = convolution(), relay.nn.bias_add(convolution(), relay.var("b", shape=(4,)))
    found = [
        subgraphs(partition(module_of(relay.nn.relu(body)), "cudnn"))[0].operators
        for body in (bare, biased)
    ]
    assert found == [("nn.conv2d",), ("nn.conv2d", "nn.bias_add", "nn.relu")]


def test_a_build_for_another_device_is_refused():
    with pytest.raises(BuildError, match="runs on NVIDIA's GPUs, and the build is for llvm"):
        relay.build(partition(module_of(product(4)), "cublaslt"), "llvm")


def test_a_library_that_is_not_installed_is_named_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda_files, "library", lambda name: str(tmp_path / name))
    with pytest.raises(LoadError, match=r"libx.so.1 can't be loaded .*: pip install 'nvidia-x'"):
        Library("X", "libx.so.1", "nvidia-x", "xGetErrorString")
