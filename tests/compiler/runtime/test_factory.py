from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tvm

from compiler.errors import BuildError, IncompatibleDeviceError, InputError
from compiler.runtime import FactoryModule, TensorInfo, graph_executor


def test_the_library_unpacks_every_time(network):
    for _ in range(2):
        graph, lib, params = network.library
        assert json.loads(graph) == json.loads(network.library.get_executor_config())
        assert lib.implements_function("vm_load_executable")
        assert list(params) == ["p0", "p1"]


def test_params_are_named_in_order(network):
    params = network.library.get_params()
    np.testing.assert_array_equal(params["p0"].numpy(), network.w)
    np.testing.assert_array_equal(params["p1"].numpy(), network.v)


def test_the_executor_has_the_name_of_the_module(build_network):
    network = build_network(mod_name="resnet")
    assert network.library.libmod_name == "resnet"
    module = graph_executor.GraphModule(network.library["resnet"](tvm.cpu()))
    module.run(**network.inputs(1))
    with pytest.raises(InputError, match=r"'default'.*resnet"):
        network.library["default"]


def test_functions_of_the_old_factory_module_are_there(network):
    library = network.library
    assert library.module["default"](tvm.cpu()).get_num_inputs() == 4
    assert library["get_graph_json"]() == library.graph_json
    assert set(library["get_graph_params"]()) == {"p0", "p1"}
    assert library["remove_params"]().get_params() == {}
    assert library.get_devices() == []
    assert library.report == {"kernels": ["matmul"]}
    assert library.target == "llvm -mcpu=x86-64"


def test_functions_of_the_executable_are_reached_by_name(network):
    assert network.library["vm_load_executable"]() is not None


def test_the_graph_has_the_structure_of_a_graph_executors(network):
    graph = json.loads(network.library.get_graph_json())
    assert [node["op"] for node in graph["nodes"]] == ["null"] * 4 + ["tvm_op"]
    assert [graph["nodes"][index]["name"] for index in graph["arg_nodes"]] == ["x", "y", "p0", "p1"]
    assert graph["nodes"][4]["inputs"] == [[index, 0, 0] for index in range(4)]
    assert graph["heads"] == [[4, 0, 0], [4, 1, 0]]
    assert graph["node_row_ptr"] == [0, 1, 2, 3, 4, 6]
    kind, shapes = graph["attrs"]["shape"]
    assert kind == "list_shape"
    assert shapes == [[2, 16], [2, 24], [16, 16], [16, 24], [2, 16], [2, 24]]
    assert graph["attrs"]["dltype"] == ["list_str", ["float32"] * 6]


def test_metadata_that_do_not_fit_the_executable_are_refused(network):
    wrong = replace(network.library.metadata, inputs=(TensorInfo("x", (2, 16), "float32"),))
    library = FactoryModule(network.library.get_lib(), wrong, network.library.get_params())
    with pytest.raises(BuildError, match=r"4 tensors.*1 inputs and 2 weights"):
        library["default"](tvm.cpu())


@pytest.mark.parametrize("devices", [[], ["cpu"], [tvm.cpu(), tvm.cpu(1)], [tvm.cpu(), tvm.cuda()]])
def test_wrong_devices_are_refused(network, devices):
    with pytest.raises(IncompatibleDeviceError, match="cpu"):
        network.library["default"](*devices)


def test_devices_may_come_as_a_list(network):
    assert network.library["default"]([tvm.cpu()]).devices == [tvm.cpu()]


def test_a_library_for_a_gpu_needs_a_gpu(network):
    metadata = replace(network.library.metadata, devices=("cuda", "cpu"))
    library = FactoryModule(network.library.get_lib(), metadata, network.library.get_params())
    with pytest.raises(IncompatibleDeviceError, match="cuda"):
        library["default"](tvm.cpu())
    if not tvm.cuda().exist:
        with pytest.raises(IncompatibleDeviceError, match=r"cuda:0.*(does not have|is missing)"):
            library["default"](tvm.cuda())


def test_a_library_in_memory_is_refused_by_a_cpu_without_its_features(network, monkeypatch):
    monkeypatch.setattr(
        "compiler.runtime.cpu.missing_features", lambda names: [n for n in names if n != "sse2"]
    )
    metadata = replace(
        network.library.metadata, cpu_features=("sse2", "avx512f"), target="llvm -mcpu=znver5"
    )
    library = FactoryModule(network.library.get_lib(), metadata, network.library.get_params())
    with pytest.raises(IncompatibleDeviceError, match=r"-mcpu=znver5.*avx512f"):
        library["default"](tvm.cpu())
