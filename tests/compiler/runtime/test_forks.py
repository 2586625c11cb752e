"""A fork after kernels have run: the child runs them too. Each test forks a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SETUP = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np, tvm
from compiler.runtime import graph_executor, load_module

library = load_module(sys.argv[1])
module = graph_executor.GraphModule(library["default"](tvm.cpu()))
entry = library.entry(tvm.cpu())
values = np.random.default_rng(0).standard_normal((64, 256)).astype("float32")
expected = np.maximum(values.astype("float64") @ np.load(sys.argv[2]), 0)

def check():
    module.run(x=values)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-3, atol=1e-3)
    result = entry(tvm.runtime.tensor(values)).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)

def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a child that hangs dies of it
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def ended_well(pid):
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A library with a kernel that runs in parallel, and its weight."""
    import numpy as np
    import tvm
    from onnx import TensorProto, helper, numpy_helper

    from compiler import relay

    folder = tmp_path_factory.mktemp("forks")
    weight = np.random.default_rng(1).standard_normal((256, 256)).astype("float32")
    np.save(folder / "weight.npy", weight.astype("float64"))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (64, 256)) for name in "xy"]
    graph = helper.make_graph(
        nodes, "model", types[:1], types[1:], [numpy_helper.from_array(weight, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        relay.build(mod, "llvm -num-cores=2", params=params).export_library(folder / "model.so")
    return [str(folder / "model.so"), str(folder / "weight.npy")]


def run(files, script, threads=2):
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "TVM_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", SETUP + script, *files],
        cwd=ROOT, env=environment, timeout=400, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_child_runs_what_its_parent_ran(files, threads):
    run(
        files, "check(); ended_well(in_child(check)); check(); ended_well(in_child(check))", threads
    )


def test_a_thread_of_a_child_and_a_child_of_a_child_run_it_too(files):
    script = """
def in_a_thread():
    thread = threading.Thread(target=check); thread.start(); thread.join()
    check()
    ended_well(in_child(check))
check(); ended_well(in_child(in_a_thread))
"""
    run(files, script)


def test_processes_of_multiprocessing_run_it_too(files):
    script = """
check()
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.apply_async(check).get(30)
    pool.apply_async(check).get(30)
"""
    run(files, script)


def test_a_fork_waits_for_the_run_of_another_thread(files):
    script = """
stop = threading.Event()
def busy():
    while not stop.is_set():
        module.run(x=values)
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads: thread.start()
def work():
    module.run(x=values)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-3, atol=1e-3)
for _ in range(3): ended_well(in_child(work))
stop.set()
for thread in threads: thread.join()
"""
    run(files, script)


def test_an_executor_that_was_running_at_the_fork_is_refused_in_the_child(files):
    script = """
from compiler.errors import BatonError
from compiler.runtime import forks
forks._WAIT_S = 0.1
lock, held = module.module._lock, threading.Event()
def hold():
    with lock:
        held.set()
        time.sleep(2)
threading.Thread(target=hold).start()
held.wait()
def work():
    try:
        module.run(x=values)
    except BatonError as error:
        assert "forked while another thread" in str(error)
    else:
        raise AssertionError("not refused")
    graph_executor.GraphModule(library["default"](tvm.cpu())).run(x=values)
ended_well(in_child(work))
"""
    run(files, script)
