"""Measuring over TVM's own tracker and RPC server, on this machine."""

from __future__ import annotations

import socket
import time

import pytest
from templates import register

from compiler import auto_scheduler, autotvm
from compiler.autotvm.measure import measure_batch
from compiler.autotvm.task import TaskCandidate
from compiler.errors import BatonError
from compiler.measure.rpc import check_remote, request_remote

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
    assert all(result.is_right for result in results), [r.error_msg for r in results]
    assert all(0 < result.costs[0] < 1 for result in results)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "192.0.2.7", "tracker.example"])
@pytest.mark.parametrize("family", [autotvm, auto_scheduler])
def test_a_tracker_is_asked_at_once_and_warned_of_if_others_reach_it(host, family, caplog):
    with pytest.raises(BatonError, match=f"no RPC tracker answers at {host}:9190"):
        family.RPCRunner("local", host, 9190, n_parallel=1, timeout=0.2)
    is_open = host not in ("127.0.0.1", "localhost")
    assert ("can run any code" in caplog.text) == is_open


def test_a_measure_context_listens_on_loopback_alone():
    context = auto_scheduler.LocalRPCMeasureContext()
    try:
        for port in (context.tracker.port, context.server.port):
            with socket.create_connection(("127.0.0.1", port), 10):
                pass
            for address in set(socket.gethostbyname_ex(socket.gethostname())[2]) | {"127.0.0.2"}:
                if address != "127.0.0.1":
                    with pytest.raises(OSError):
                        socket.create_connection((address, port), 10)
    finally:
        context.close()


def test_a_key_without_devices_is_an_error(tracker):
    with pytest.raises(BatonError, match="no device with the key 'absent'"):
        autotvm.RPCRunner("absent", "127.0.0.1", tracker.port)


def test_a_device_that_is_not_there_is_not_waited_for(tracker):
    start = time.monotonic()
    assert not check_remote("llvm", "absent", "127.0.0.1", 9, timeout=1)
    assert not check_remote("llvm", "absent", "127.0.0.1", tracker.port, timeout=1)
    assert time.monotonic() - start < 10
    with pytest.raises(BatonError, match="no RPC tracker answers"):
        request_remote("absent", "127.0.0.1", 9)
