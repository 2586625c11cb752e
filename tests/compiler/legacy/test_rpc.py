"""The script of TVM's tutorial "deploy on a Raspberry Pi", of its eras, against a server here."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_START = """
    import numpy as np
    import tvm
    from tvm import relay, rpc
    from tvm.contrib import utils, {executor} as runtime
    from tvm.relay import testing

    net, params = testing.mlp.get_workload(1, image_shape=(1, 4, 4))
    folder = utils.tempdir()
    data = np.random.RandomState(0).uniform(-1, 1, (1, 1, 4, 4)).astype("float32")
    server = rpc.Server(host="127.0.0.1", port=9190, port_end=9390)
    sessions = [rpc.LocalSession(), rpc.connect("127.0.0.1", server.port)]
"""

_FACTORY = """
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(net, "llvm", params=params)
    here = runtime.GraphModule(lib["default"](tvm.cpu(0)))
    here.run(data=data)
    for remote in sessions:
        for name in ("net.tar", "net.so"):
            lib.export_library(folder.relpath(name))
            remote.upload(folder.relpath(name))
            rlib = remote.load_module(name)
            dev = remote.cpu(0)
            module = runtime.GraphModule(rlib["default"](dev))
            module.set_input("data", tvm.nd.array(data))
            module.run()
            out = module.get_output(0)
            np.testing.assert_allclose(out.numpy(), here.get_output(0).numpy(), rtol=1e-5)
            ftimer = module.module.time_evaluator("run", dev, number=1, repeat=3)
            assert len(ftimer().results) == 3
    server.terminate()
    print("deployed")
"""

_TUPLE = """
    with relay.build_config(opt_level=3):
        graph, lib, params = relay.build(net, "llvm", params=params)
    here = runtime.create(graph, lib, tvm.cpu(0))
    here.set_input(**params)
    here.run(data=data)
    want = here.get_output(0).asnumpy()
    for name in ("net.tar", "net.so"):
        lib.export_library(folder.relpath(name))
        loaded = runtime.create(graph, tvm.module.load(folder.relpath(name)), tvm.cpu(0))
        loaded.set_input(**params)
        loaded.run(data=data)
        np.testing.assert_allclose(loaded.get_output(0).asnumpy(), want, rtol=1e-5)
    for remote in sessions:
        for name in ("net.tar", "net.so"):
            remote.upload(folder.relpath(name))
            rlib = remote.load_module(name)
            ctx = remote.context("cpu", 0)
            module = runtime.create(graph, rlib, ctx)
            module.set_input(**{k: tvm.nd.array(v, ctx) for k, v in params.items()})
            module.set_input("data", tvm.nd.array(data))
            module.run()
            np.testing.assert_allclose(module.get_output(0).asnumpy(), want, rtol=1e-5)
    server.terminate()
    print("deployed")
"""

_KERNEL = """
    from tvm import te
    A = te.placeholder((16,), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    func = tvm.build(s, [A, B], target="llvm", name="add_one")
    func.export_library(folder.relpath("lib.tar"))
    for remote in sessions:
        remote.upload(folder.relpath("lib.tar"))
        func = remote.load_module("lib.tar")
        dev = remote.cpu()
        a = tvm.nd.array(np.arange(16, dtype="float32"), dev)
        b = tvm.nd.array(np.zeros(16, dtype="float32"), dev)
        func["add_one"](a, b)
        np.testing.assert_equal(b.numpy(), a.numpy() + 1)
    server.terminate()
    print("deployed")
"""

_DEBUG = """
    from tvm.contrib.debugger import debug_executor
    lib = relay.build(net, "llvm", params=params)
    lib.export_library(folder.relpath("net.so"))
    devices = [(lib, tvm.cpu(0))]
    for remote in sessions:
        remote.upload(folder.relpath("net.so"))
        devices.append((remote.load_module("net.so"), remote.cpu(0)))
    graph = lib.get_graph_json()
    modules = [debug_executor.create(graph, *each) for each in devices]
    names = [[row["Name"] for row in each.profile(data=data).calls] for each in modules]
    assert len(names[0]) > 1 and names[1] == names[2] == names[0], names
    server.terminate()
    print("deployed")
"""


def _deploy(tmp_path, body: str, executor: str = "graph_executor") -> None:
    script = tmp_path / "deploy.py"
    script.write_text(textwrap.dedent(_START.format(executor=executor) + body))
    program = "import sys; from compiler.legacy import run_script; run_script(sys.argv[1])"
    command = [sys.executable, "-c", program, str(script)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "deployed" in result.stdout


def test_the_script_of_a_factory_module(tmp_path):
    _deploy(tmp_path, _FACTORY)


def test_the_script_of_graph_lib_and_params(tmp_path):
    _deploy(tmp_path, _TUPLE, "graph_runtime")


def test_a_te_kernel_on_a_server_is_tvms_own_module(tmp_path):
    _deploy(tmp_path, _KERNEL)


def test_the_debug_executor_times_kernels_on_servers_that_a_script_starts(tmp_path):
    _deploy(tmp_path, _DEBUG)
