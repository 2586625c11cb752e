"""prefer="fastest": a record and the build without it are measured once, and the faster is used."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm

from compiler import autotvm
from compiler.autotvm import decode
from compiler.autotvm.single_op_program import program_of
from compiler.errors import RecordError
from compiler.lowering.build import build
from compiler.records.autotvm import log_benchmark
from compiler.target import parse

ROW = {
    "input": ["llvm", "dense_nopack.x86", [["TENSOR", [4, 64], "float32"],
              ["TENSOR", [32, 64], "float32"], None, "float32"], {}],
    "config": {"index": 0, "code_hash": None, "entity": [["tile_y", "sp", [-1, 1]],
               ["tile_x", "sp", [-1, 4]], ["tile_k", "sp", [-1, 16]]]},
    "result": [[1e-6], 0, 1.0, 1.0],
    "version": 0.2,
    "tvm_version": "0.18.0",
}  # fmt: skip
RECORD = decode(json.dumps(ROW))
HOST = parse("llvm")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "baton" / "contests.jsonl"


@pytest.fixture
def measured(monkeypatch):
    """Verdicts that measuring would give, and how often it was asked."""
    answers = {"verdict": None, "asked": 0}

    def measure(*_):
        answers["asked"] += 1
        return answers["verdict"]

    monkeypatch.setattr(log_benchmark, "_measure_elsewhere", measure)
    return answers


def kernel(prefer):
    program = program_of(RECORD[0].task, np.random.default_rng(0))
    records = autotvm.apply_history_best([RECORD], prefer=prefer)
    with records, tvm.transform.PassContext(opt_level=3):
        library = build(program.mod, HOST)
    (found,) = library.report.kernels
    return found


def test_a_slower_record_gives_way_and_is_measured_once(measured):
    measured["verdict"] = log_benchmark.Outcome(2e-6, 1e-6)
    assert [kernel("fastest").source for _ in range(2)] == ["topi:fallback"] * 2
    assert measured["asked"] == 1


def test_a_faster_record_is_used(measured):
    measured["verdict"] = log_benchmark.Outcome(1e-6, 2e-6)
    assert kernel("fastest").implementation == "dense_nopack.x86"


def test_a_log_that_is_preferred_wins_and_the_report_says_what_it_costs(measured):
    measured["verdict"] = log_benchmark.Outcome(2e-6, 1e-6)
    assert kernel("log").remark == ""
    kernel("fastest")
    found = kernel("log")
    assert (found.implementation, found.remark) == ("dense_nopack.x86", "2.0 us, 1.0 us without")


def test_what_can_not_be_measured_keeps_its_record(measured):
    assert kernel("fastest").implementation == "dense_nopack.x86"


def test_damaged_verdicts_are_measured_again(measured, cache):
    measured["verdict"] = log_benchmark.Outcome(2e-6, 1e-6)
    kernel("fastest")
    cache.write_text(cache.read_text()[:20] + "\n[]\n{}\n")
    kernel("fastest")
    assert measured["asked"] == 2


def test_a_verdict_belongs_to_its_config(measured):
    first, _ = RECORD
    other = decode(json.dumps(ROW).replace("[-1, 16]", "[-1, 8]"))[0]
    measured["verdict"] = log_benchmark.Outcome(2e-6, 1e-6)
    log_benchmark.measured(HOST, first.task.workload, first.config)
    assert log_benchmark.kept(HOST, first.task.workload, first.config) is not None
    assert log_benchmark.kept(HOST, other.task.workload, other.config) is None


def test_measuring_runs_both_libraries():
    found = log_benchmark.measured(HOST, RECORD[0].task.workload, RECORD[0].config)
    assert found is not None
    assert found.logged_seconds > 0 and found.own_seconds > 0


def test_another_preference_is_refused():
    with pytest.raises(RecordError, match="log, fastest"):
        autotvm.apply_history_best([RECORD], prefer="slowest")
