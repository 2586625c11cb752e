"""Libraries on a plain TVM RPC server: a process without Baton, on the loopback interface."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import rpc

from compiler.errors import (
    ExportError,
    ForeignLibraryError,
    IncompatibleDeviceError,
    InputError,
    LoadError,
)
from compiler.runtime import graph_executor, remote


@pytest.fixture(scope="module")
def server():
    server = rpc.Server("127.0.0.1")
    yield server
    server.terminate()


@pytest.fixture(scope="module", params=["server", "local"])
def session(request, server):
    return rpc.LocalSession() if request.param == "local" else rpc.connect("127.0.0.1", server.port)


@pytest.fixture
def upload(session, network, tmp_path):
    def upload_as(name: str, library=network.library) -> str:
        library.export_library(str(tmp_path / name))
        session.upload(str(tmp_path / name))
        return str(tmp_path / name)

    return upload_as


def check(module, network, seed=1) -> None:
    inputs = network.inputs(seed)
    module.run(**inputs)
    for index, expected in enumerate(network.reference(**inputs)):
        np.testing.assert_allclose(module.get_output(index).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_an_uploaded_library_runs(session, network, upload, name):
    upload(name)
    library = remote.load_module(session, name)
    module = graph_executor.GraphModule(library["default"](session.cpu(0)))
    check(module, network)
    first = module.get_output(0)
    kept = first.numpy()
    check(module, network, seed=2)
    np.testing.assert_array_equal(first.numpy(), kept)
    shapes, _ = module.get_input_info()
    assert shapes["x"] == (2, 16)


def test_the_file_here_saves_the_download(session, network, upload, monkeypatch):
    path = upload("local.so")
    monkeypatch.delattr(rpc.RPCSession, "download")
    library = remote.load_module(session, "local.so", local=path)
    check(graph_executor.GraphModule(library["default"](session.cpu(0))), network)


def test_runs_are_timed_on_the_server(session, network, upload):
    upload("timed.so")
    library = remote.load_module(session, "timed.so")
    module = graph_executor.GraphModule(library["default"](session.cpu(0)))
    with pytest.raises(InputError, match="have not been set: x"):
        module.module.time_evaluator("run", session.cpu(0))()
    module.set_input(**network.inputs(1))
    times = module.module.time_evaluator("run", session.cpu(0), number=2, repeat=3)()
    assert len(times.results) == 3
    assert min(times.results) > 0
    assert len(module.benchmark(session.cpu(0), repeat=2, number=1, end_to_end=True).results) == 2


@pytest.mark.parametrize("name", ["parts.so", "parts.tar"])
def test_the_parts_of_a_library_make_an_executor_there(session, network, upload, name):
    graph, code, params = network.library
    upload(name, code)
    module = graph_executor.create(graph, session.load_module(name), session.cpu(0))
    with pytest.raises(InputError, match="p0"):
        module.run(**network.inputs(1))
    module.set_input(**params)
    check(module, network)


def test_a_local_tensor_and_a_remote_one_are_inputs(session, network, upload):
    upload("tensors.so")
    library = remote.load_module(session, "tensors.so")
    module = graph_executor.GraphModule(library["default"](session.cpu(0)))
    inputs = network.inputs(3)
    module.set_input("x", tvm.runtime.tensor(inputs["x"]))
    module.set_input("y", tvm.runtime.tensor(inputs["y"], session.cpu(0)))
    module.run()
    expected = network.reference(**inputs)[1]
    np.testing.assert_allclose(module.get_output(1).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_library_and_device_must_be_on_one_machine(session, network, upload):
    upload("place.so")
    library = remote.load_module(session, "place.so")
    with pytest.raises(IncompatibleDeviceError, match="on an RPC server"):
        library["default"](tvm.cpu(0))
    with pytest.raises(IncompatibleDeviceError, match="upload it"):
        network.library["default"](session.cpu(0))


def test_what_a_server_can_not_do_is_said(session, network, upload, tmp_path):
    upload("less.so")
    library = remote.load_module(session, "less.so")
    module = graph_executor.GraphModule(library["default"](session.cpu(0)))
    with pytest.raises(InputError, match="without a copy"):
        module.set_input_zero_copy("x", tvm.runtime.empty((2, 16), "float32", session.cpu(0)))
    with pytest.raises(InputError, match="entry"):
        library.entry(session.cpu(0))
    with pytest.raises(ExportError, match="on an RPC server"):
        library.export_library(tmp_path / "copy.so")
    with pytest.raises(LoadError, match=r"can't download 'absent\.so'"):
        remote.load_module(session, "absent.so")
    upload("foreign.so", network.library.get_lib())
    with pytest.raises(ForeignLibraryError):
        remote.load_module(session, "foreign.so")


def test_the_debug_executor_times_each_kernel_of_a_local_session(network, tmp_path):
    from compiler.runtime.debugger import debug_executor

    session = rpc.LocalSession()
    network.library.export_library(str(tmp_path / "kernels.so"))
    session.upload(str(tmp_path / "kernels.so"))
    library = remote.load_module(session, "kernels.so")
    graph = network.library.get_graph_json()
    here = debug_executor.create(graph, network.library, tvm.cpu())
    there = debug_executor.create(graph, library, session.cpu(0))
    expected = [row["Name"] for row in here.profile(**network.inputs(1)).calls]
    found = there.profile(**network.inputs(1)).calls
    assert len(expected) > 1 and [row["Name"] for row in found] == expected
    times = there.run_individual(number=2, repeat=3)
    assert [len(row) for row in times] == [3] * (there.get_num_inputs() + len(expected))
    check(there, network)
    with pytest.raises(InputError, match="no tensors between kernels"):
        there.debug_get_output(0)


def test_the_debug_executor_times_whole_runs_of_a_server_without_baton(network, tmp_path, caplog):
    from compiler.runtime.debugger import debug_executor

    server = rpc.Server("127.0.0.1")  # a server has one client at a time
    session = rpc.connect("127.0.0.1", server.port)
    network.library.export_library(str(tmp_path / "debug.so"))
    session.upload(str(tmp_path / "debug.so"))
    library = remote.load_module(session, "debug.so")
    graph = network.library.get_graph_json()
    module = debug_executor.create(graph, library, session.cpu(0))
    assert "not of kernels" in caplog.text
    (row,) = module.profile(**network.inputs(1)).calls
    assert row["Name"] == "main" and row["Duration (us)"] > 0
    check(module, network)
    with pytest.raises(InputError, match="no tensors between kernels"):
        module.debug_get_output(0)
    server.terminate()
