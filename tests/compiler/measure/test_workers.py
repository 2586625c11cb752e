"""Worker processes survive whatever a call does."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time

import psutil
import pytest

from compiler.errors import BatonError
from compiler.measure import workers
from compiler.measure.workers import WorkerPool

GIB = 1 << 30


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1) as made:
        made.call(os.getpid, (), 60)  # the first call starts the process
        yield made


def test_a_call_returns_its_value(pool):
    assert pool.call(divmod, (17, 5), 20) == ("value", (3, 2))


def test_an_exception_is_told_with_its_class(pool):
    assert pool.call(divmod, (1, 0), 20).kind == "raised"
    assert "ZeroDivisionError" in pool.call(divmod, (1, 0), 20).value


def test_each_call_has_a_process_of_its_own(pool):
    ids = [pool.call(os.getpid, (), 20).value for _ in range(3)]
    assert len(set(ids)) == 3 and os.getpid() not in ids


def test_a_crash_ends_its_call_alone(pool):
    crashed = pool.call(signal.raise_signal, (signal.SIGSEGV,), 20)
    assert crashed.kind == "died" and "SIGSEGV" in crashed.value
    assert pool.call(os._exit, (3,), 20) == ("died", "exit code 3")
    assert pool.call(sys.exit, (3,), 20).kind == "raised"
    assert pool.call(abs, (-1,), 20).value == 1


def test_a_call_that_takes_too_long_is_ended(pool):
    start = time.monotonic()
    assert pool.call(time.sleep, (60,), 0.5).kind == "timeout"
    assert time.monotonic() - start < 20
    assert pool.call(abs, (-1,), 20).value == 1


def test_a_call_gets_no_more_memory_than_its_limit(pool):
    assert pool.call(bytearray, (2 * GIB,), 20, GIB // 4).kind == "memory"
    assert len(pool.call(bytearray, (GIB // 16,), 20, GIB // 4).value) == GIB // 16


def test_a_worker_that_was_killed_is_replaced(pool):
    parent = pool.call(os.getppid, (), 20).value
    os.kill(parent, signal.SIGKILL)
    kinds = [pool.call(abs, (-1,), 60).kind for _ in range(2)]
    assert kinds[-1] == "value"


def test_what_can_not_be_sent_is_an_error(pool):
    with pytest.raises(BatonError, match="can't be sent"):
        pool.call(print, (threading.Lock(),), 20)


def test_calls_run_side_by_side():
    with WorkerPool(2) as two:
        for future in [two.submit(os.getpid, (), 60) for _ in range(2)]:
            future.result()
        start = time.monotonic()
        for future in [two.submit(time.sleep, (2,), 60) for _ in range(2)]:
            assert future.result().kind == "value"
        assert time.monotonic() - start < 3.9


def parent_of_a_call(environment=None):
    with WorkerPool(1, environment) as fresh:
        return fresh.call(os.getppid, (), 60).value


def test_a_warm_process_goes_on_to_the_next_pool_of_the_same_environment(tmp_path, monkeypatch):
    first = parent_of_a_call()
    assert parent_of_a_call() == first
    with WorkerPool(1) as busy:
        assert busy.call(os.getppid, (), 60).value == first
        assert parent_of_a_call() != first
    assert parent_of_a_call({"A_VARIABLE": "1"}) != first
    monkeypatch.chdir(tmp_path)
    assert parent_of_a_call() != first


def test_a_warm_process_that_ended_meanwhile_is_replaced():
    first = parent_of_a_call()
    os.kill(first, signal.SIGKILL)
    assert parent_of_a_call() != first


def test_a_process_that_nobody_asks_for_anything_ends(monkeypatch):
    monkeypatch.setenv("ANOTHER_VARIABLE", "1")  # so that it is a new one, which knows the limit
    monkeypatch.setattr(
        workers,
        "_PROGRAM",
        "from compiler.measure import fork_server as f; f.IDLE_SECONDS = 1; f.serve()",
    )
    first = psutil.Process(parent_of_a_call())
    assert first.wait(30) is not None
    assert parent_of_a_call() != first.pid


def test_without_cloudpickle_functions_that_need_it_say_so(monkeypatch):
    monkeypatch.setattr(workers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BatonError, match=r"cloudpickle, which is not installed: pip install"):
        workers._pickled(lambda: 0, ())


class Candidate:
    """What is sent to a worker, with the functions of the user's that it calls."""

    def __init__(self, function):
        self.user_functions = (function,)

    def run(self):
        return self.user_functions[0](20)


def test_functions_of_modules_beside_a_script_are_sent_with_what_they_call(
    pool, tmp_path, monkeypatch
):
    texts = {
        "beside_a": "import beside_c\nfrom beside_b import shifted\n\n\n"
        "def template(n):\n    return [shifted(each) for each in (n,)][0] + beside_c.LAST()\n",
        "beside_b": "OFFSET = 1\n\n\ndef shifted(n):\n    return Shift(OFFSET).of(n)\n\n\n"
        "class Shift:\n    def __init__(self, by):\n        self.by = by\n\n"
        "    def of(self, n):\n        return n + self.by\n",
        "beside_c": "class LAST(int):\n    def __new__(cls):\n        return int.__new__(cls, 7)\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("beside_a").template
    candidate = Candidate(function)
    modules = workers._user_modules((None, [candidate]))
    assert {"beside_a", "beside_b", "beside_c"} <= {each.__name__ for each in modules}
    assert not {"numpy", "os", "tvm"} & {each.__name__ for each in modules}
    assert pool.call(_run, (candidate,), 60) == ("value", 28)


def _run(candidate):
    return candidate.run()
