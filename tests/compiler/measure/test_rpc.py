"""Measuring over TVM's own tracker and RPC server, on this machine."""

from __future__ import annotations

import time

import pytest
from templates import register

from compiler import autotvm
from compiler.autotvm.measure import measure_batch
from compiler.autotvm.task import TaskCandidate
from compiler.errors import BatonError

pytest.importorskip("tornado")  # TVM's tracker needs it
register()


@pytest.fixture(scope="module")
def tracker():
    from tvm import rpc
    from tvm.rpc.tracker import Tracker

    tracker = Tracker("127.0.0.1", port=29190, port_end=29999)
    server = rpc.Server(
        "127.0.0.1",
        29090,
        29189,
        key="local",
        tracker_addr=("127.0.0.1", tracker.port),
        silent=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = rpc.connect_tracker("127.0.0.1", tracker.port).summary()["server_info"]
        if found:
            break
        time.sleep(0.2)
    yield tracker
    server.terminate()
    tracker.terminate()


def test_candidates_run_on_a_trackers_device(tracker):
    task = autotvm.task.create("test.split_sum", (48,), "llvm")
    runner = autotvm.RPCRunner(
        "local", "127.0.0.1", tracker.port, timeout=60, number=2, cooldown_interval=0,
        check_correctness=True,
    )  # fmt: skip
    assert runner.n_parallel == 1
    builder = autotvm.LocalBuilder(timeout=60, n_parallel=1)
    candidates = [TaskCandidate(task, task.config_space.get(index)) for index in (0, 3)]
    results = measure_batch(autotvm.measure_option(builder, runner), candidates)
    builder.close()
    runner.close()
    assert all(result.is_right for result in results), [r.message for r in results]
    assert all(0 < result.costs[0] < 1 for result in results)


def test_a_key_without_devices_is_an_error(tracker):
    with pytest.raises(BatonError, match="no device with the key 'absent'"):
        autotvm.RPCRunner("absent", "127.0.0.1", tracker.port)
