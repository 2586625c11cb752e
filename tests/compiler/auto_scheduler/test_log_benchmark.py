"""prefer="fastest": a record and the build without it are measured once, the faster is used."""

from __future__ import annotations

import pytest
import tvm

from compiler import auto_scheduler, relay
from compiler import target as targets
from compiler.auto_scheduler import extract_tasks
from compiler.errors import RecordError
from compiler.lowering.selection.extract import alone
from compiler.records.ab_benchmark import Outcome
from compiler.records.auto_scheduler import log_benchmark
from compiler.records.auto_scheduler.record import Record
from tests.compiler.auto_scheduler.networks import dense_module

HOST = targets.parse("llvm")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def measured(monkeypatch):
    """The verdict that measuring would give, and how often it was asked."""
    answers = {"verdict": None, "asked": 0}

    def measure(*_):
        answers["asked"] += 1
        return answers["verdict"]

    monkeypatch.setattr(log_benchmark, "_measure_elsewhere", measure)
    return answers


def record():
    """Says to leave the product's loops as they are."""
    (task,) = extract_tasks(dense_module(), {}, HOST)[0]
    return Record(task.workload_key, {"kind": "llvm"}, [[], []], (1e-6,), timestamp=1.0), task


def kernel(prefer):
    history = auto_scheduler.ApplyHistoryBest([record()[0]], prefer=prefer)
    with history, tvm.transform.PassContext(opt_level=3):
        library = relay.build(dense_module(), HOST)
    (found,) = [k for k in library.report.kernels if "nn.dense" in k.operators]
    return found


def test_a_slower_record_gives_way_and_is_measured_once(measured):
    measured["verdict"] = Outcome(2e-6, 1e-6)
    assert [kernel("fastest").source for _ in range(2)] == ["topi:fallback"] * 2
    assert measured["asked"] == 1


def test_a_faster_record_is_used_as_is_one_that_can_not_be_measured(measured):
    assert kernel("fastest").implementation == "auto_scheduler"
    measured["verdict"] = Outcome(1e-6, 2e-6)
    assert kernel("fastest").implementation == "auto_scheduler"


def test_a_log_that_is_preferred_wins_and_the_report_says_what_it_costs(measured):
    measured["verdict"] = Outcome(2e-6, 1e-6)
    assert kernel("log").remark == "" and measured["asked"] == 0
    kernel("fastest")
    found = kernel("log")
    assert (found.implementation, found.remark) == ("auto_scheduler", "2.0 us, 1.0 us without")


def test_measuring_runs_both_libraries():
    logged, task = record()
    found = log_benchmark.measured(HOST, task.workload_key, logged, lambda: alone(*task.origin))
    assert found is not None
    assert found.logged_seconds > 0 and found.own_seconds > 0


def test_another_preference_is_refused():
    with pytest.raises(RecordError, match="log, fastest"):
        auto_scheduler.ApplyHistoryBest([record()[0]], prefer="slowest")
