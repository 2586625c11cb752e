"""Sessions keep serving while callbacks make requests, and in processes forked during a run."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from compiler import relay
from compiler.errors import InputError

X = np.ones((64, 256), "float32")
LIMIT_S = 60


@pytest.fixture(scope="module")
def library():
    """relu(x @ 1), whose results are 256."""
    x = relay.var("x", shape=X.shape)
    weight = relay.const(np.ones((256, 256), "float32"))
    return relay.build(relay.Function([x], relay.nn.relu(relay.nn.dense(x, weight))), "llvm")


def result_of(session):
    (result,) = session.run({"x": X}).values()
    return result


def test_callbacks_make_requests_of_their_session(library):
    session = library.session(num_threads=1)
    results, all_done = [], threading.Event()

    def again(_):
        results.append(result_of(session))
        if len(results) == 20:
            all_done.set()

    for future in [session.run_async({"x": X}) for _ in range(20)]:
        future.add_done_callback(again)
    assert all_done.wait(LIMIT_S)
    assert all(np.all(result == 256) for result in results)


def test_callbacks_run_in_order_on_one_thread_and_get_the_future(library):
    session = library.session(num_threads=1)
    seen, is_done = [], threading.Event()
    future = session.run_async({"x": X})
    for number in range(3):
        future.add_done_callback(
            lambda done, n=number: seen.append((n, done, threading.get_ident()))
        )
    future.add_done_callback(lambda _: is_done.set())
    assert is_done.wait(LIMIT_S)
    assert [number for number, _, _ in seen] == [0, 1, 2]
    assert all(done is future for _, done, _ in seen)
    assert len({thread for _, _, thread in seen}) == 1


def test_a_callback_that_fails_is_logged_and_stops_nothing(library, caplog):
    session = library.session(num_threads=1)
    is_done = threading.Event()
    future = session.run_async({"x": X})
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(lambda _: is_done.set())
    assert is_done.wait(LIMIT_S)
    assert "a callback of a request failed" in caplog.text
    assert np.all(result_of(session) == 256)


def test_a_request_that_was_canceled_is_not_run(library):
    session = library.session(num_threads=1)
    futures = [session.run_async({"x": X}) for _ in range(50)]
    canceled = [future for future in reversed(futures) if future.cancel()]
    assert canceled
    for future in futures:
        assert future.cancelled() == (future in canceled)
        if future not in canceled:
            (result,) = future.result().values()
            assert np.all(result == 256)


@pytest.mark.parametrize("is_bound", [False, True], ids=["run", "bind"])
def test_children_forked_during_a_run_run_too(library, is_bound):
    session = library.session(num_threads=1)
    binding = session.bind({"x": np.array(X)}) if is_bound else None

    def run():
        (result,) = binding.run().values() if binding else session.run({"x": X}).values()
        return bool(np.all(result == 256))

    assert run()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            run()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(12):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                signal.alarm(LIMIT_S)
                os._exit(0 if run() and run() else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


@pytest.mark.parametrize("count", [0, -1, 2**70, 1025, True, 1.0, "2"])
@pytest.mark.parametrize("option", ["num_threads", "parallel"])
def test_numbers_of_threads_are_limited(library, option, count):
    with pytest.raises(InputError, match=f"{option} must be an integer from 1 to 1024"):
        library.session(**{option: count})
