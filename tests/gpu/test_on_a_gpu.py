"""A first look on a machine with a GPU: every family of kernels, all six models.

`make gpu-test` runs these alone and says why, where they are skipped.
"""

import functools

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.models import fill_weights
from compiler.partition import partition
from compiler.runtime import cuda_files, cuda_runtime, graph_executor, nvidia
from compiler.target.nvcc import device_code
from scripts.gpu_kit.networks import library_layer
from tests.schedules.cuda.families import FAMILIES
from tests.test_models import NAMES, example_inputs


@functools.cache
def lacking():
    """Why nothing can run here; None where it can."""
    missing = cuda_runtime.prepare()
    if missing is None and not tvm.cuda(0).exist:
        return "there is no GPU that NVIDIA's driver knows of; `baton doctor` says more"
    return missing


@pytest.fixture(autouse=True)
def _on_a_gpu():
    if lacking() is not None:
        pytest.skip(lacking())


def arch():
    return "sm_" + tvm.cuda(0).compute_version.replace(".", "")


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_a_kernel_of_each_family(family):
    if family.arch and family.arch != f"{arch()}a":
        pytest.skip(f"this kernel is for {family.arch}")
    _, func, target = family.scheduled(family.arch or arch())
    module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    with device_code():
        library = tvm.compile(module, target)
    inputs = family.inputs()
    result = family.func().params[-1]
    shape = tuple(int(extent) for extent in result.shape)
    device = tvm.cuda(0)
    found = tvm.runtime.tensor(np.zeros(shape, str(result.dtype)), device)
    library["kernel"](*[tvm.runtime.tensor(values, device) for values in inputs], found)
    family.check(found.numpy(), inputs)


def run(library, device, inputs, rounds=1):
    module = graph_executor.GraphModule(library["default"](device))
    for _ in range(rounds):
        module.run(**inputs)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gives_the_cpus_numbers_also_by_graphs(name):
    model = fill_weights.hydrate(name)
    inputs = example_inputs(model)
    mod, params = relay.frontend.from_onnx(model)
    expected = run(relay.build(mod, "llvm", params=params), tvm.cpu(), inputs)
    for graphs in (False, True):
        config = {"relax.backend.use_cuda_graph": graphs}
        with tvm.transform.PassContext(opt_level=3, config=config):
            library = relay.build(mod, "cuda", params=params)
        for got, wanted in zip(run(library, tvm.cuda(0), inputs, 3), expected, strict=True):
            assert np.abs(got - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("backend", ["cublaslt", "cudnn"])
def test_layers_of_nvidias_libraries_give_batons_numbers(backend, dtype):
    if cuda_files.library(nvidia.FILES[backend]) is None:
        pytest.skip(f"{backend} is not here: pip install '{nvidia.PACKAGES[backend]}'")
    mod, inputs = library_layer(backend, dtype)
    (wanted,) = run(relay.build(mod, "cuda"), tvm.cuda(0), inputs)
    (got,) = run(relay.build(partition(mod, backend), "cuda"), tvm.cuda(0), inputs, 3)
    limit = 1e-4 if dtype == "float32" else 2e-2
    assert np.abs(got - wanted).max() <= limit * np.abs(wanted).max()
