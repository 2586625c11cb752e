"""CUDA libraries on a machine with a GPU, which a mocked driver poses as."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.runtime import cuda_files, cuda_runtime
from tests import cuda_mock

needs_compiler = pytest.mark.skipif(cuda_mock.COMPILER is None, reason="needs a C compiler")

# TVM's own callback for compiling CUDA needs packages that are not there; here it always fails.
BUILD = """
import sys
import onnx
import tvm
import tvm_ffi
from compiler import relay
from compiler import target as targets
from compiler.cli import doctor

def tvms_own(source):
    raise RuntimeError("TVM compiles the source itself")

print("before", tvm.cuda(0).exist)
mod, params = relay.frontend.from_onnx(onnx.load(sys.argv[1]))
target = targets.parse("cuda")
print("after", tvm.cuda(0).exist, target.attrs["arch"])
tvm_ffi.register_global_func("tvm_callback_cuda_compile", tvms_own, override=True)
library = relay.build(mod, target="cuda -arch=sm_90a", params=params)
print({kernel.implementation for kernel in library.report.kernels})
library.export_library(sys.argv[2])
found = doctor.examine()["cuda"]
print(found["driver"], found["devices"][0]["device"], found["devices"][0]["sms"], found["runtime"])
"""

RUN = """
import sys
import numpy as np
import tvm
from compiler.runtime import graph_executor, load_module
print("compiler", hasattr(tvm, "relax"), "device", tvm.cuda(0).exist)
library = load_module(sys.argv[1])
print("device", tvm.cuda(0).exist)
module = graph_executor.GraphModule(library["default"](tvm.cuda(0)))
module.run(x=np.zeros((2048, 64), "float16"))
print(module.get_output(0).numpy().shape)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return cuda_mock.make_home(tmp_path_factory.mktemp("cuda") / "home")


@pytest.fixture(scope="module")
def exported(home, tmp_path_factory):
    """A half-precision product, built where there is a GPU; what the build printed."""
    folder = tmp_path_factory.mktemp("built")
    weight = numpy_helper.from_array(np.zeros((64, 2048), "float16"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (2048, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (2048, 2048))],
        [weight],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset), folder / "m.onnx")
    path = folder / "product.so"
    printed = cuda_mock.run(BUILD, home, str(folder / "m.onnx"), str(path))
    return path, printed


@needs_compiler
def test_a_build_where_there_is_a_gpu_uses_batons_compiler_and_the_gpus_architecture(exported):
    _, printed = exported
    assert printed[:2] == ["before False", "after True sm_90a"]


@needs_compiler
def test_half_precision_products_run_on_tensor_cores_also_for_sm_90a(exported):
    assert exported[1][2] == "{'cuda.tensor_cores'}"


@needs_compiler
def test_doctor_names_the_driver_the_device_and_the_runtime(exported):
    assert exported[1][3] == "CUDA 13.0 mock H100 114 libtvm_runtime_cuda.so"


@needs_compiler
def test_tvms_runtime_alone_runs_the_library_and_gets_the_shared_memory(exported, home, tmp_path):
    log = tmp_path / "log"
    printed = cuda_mock.run(
        RUN, home, str(exported[0]), TVM_USE_RUNTIME_LIB="1", MOCK_CUDA_LOG=str(log)
    )
    assert printed == ["compiler False device False", "device True", "(2048, 2048)"]
    lines = log.read_text().splitlines()
    assert "module 4d4f434b" in lines, "the device code that was made when the library was built"
    # The product is launched once, and once more to be captured in a graph.
    (launch,) = {line for line in lines if line.startswith("launch matmul")}
    shared = int(launch.split()[-1])
    assert shared > 48 * 1024
    name = launch.split()[1]
    assert f"attribute {name} 8 {shared}" in lines, "asks for more than the static limit"


def test_a_missing_runtime_of_cuda_is_named_with_the_package_that_brings_it():
    text = cuda_runtime._advice("libcudart.so.13")
    assert "libcudart.so.13" in text and "pip install 'nvidia-cuda-runtime==13.*'" in text
    assert "nvidia-cuda-runtime-cu12" in cuda_runtime._advice("libcudart.so.12")
    assert "install the driver" in cuda_runtime._advice("libcuda.so.1")


def test_libraries_are_found_among_pips_packages_and_behind_cuda_path(monkeypatch, tmp_path):
    packages, named = tmp_path / "site" / "nvidia" / "cu13" / "lib", tmp_path / "home" / "lib64"
    for folder in (packages, named):
        folder.mkdir(parents=True)
        (folder / "libmadeup.so.1").touch()
    for name in cuda_files.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_files, "DEFAULT_HOME", str(tmp_path / "none"))
    assert cuda_files.library("libmadeup.so.1") is None
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert cuda_files.library("libmadeup.so.1") == str(packages / "libmadeup.so.1")
    monkeypatch.setenv("CUDA_HOME", str(named.parent))
    assert cuda_files.library("libmadeup.so.1") == str(named / "libmadeup.so.1")
