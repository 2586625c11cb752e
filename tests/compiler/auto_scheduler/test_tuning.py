"""Tuning a task with MetaSchedule, for real and as small as it gets."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest
from tvm import te, topi

from compiler import target as targets
from compiler.auto_scheduler import tuning
from compiler.auto_scheduler.record import load_records, replay
from compiler.auto_scheduler.task import SearchTask
from compiler.auto_scheduler.workload import workload_key
from compiler.errors import RecordError


@pytest.fixture(scope="module")
def task():
    x, w = te.placeholder((4, 8), name="x"), te.placeholder((8, 8), name="w")
    func = te.create_prim_func([x, w, topi.nn.matmul(x, w)])
    return SearchTask(
        func,
        workload_key(func),
        targets.parse("llvm -mcpu=x86-64-v3 -num-cores=2"),
        "matmul",
        512.0,
    )


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("cloudpickle", "psutil"))),
    reason="the extra 'tune' is not installed",
)
def test_tuned_task_leaves_replayable_records(task, tmp_path, monkeypatch):
    # MetaSchedule parses every tensor intrinsic of every device first, which takes longer than
    # this whole test; a float matmul on a CPU uses none of them.
    monkeypatch.setitem(sys.modules, "tvm.s_tir.tensor_intrin", types.ModuleType("none"))
    log = tmp_path / "tuned.json"
    best = tuning.tune_task(task, 2, log, seed=1, cost_model="random", strategy="replay-trace")
    records = load_records(log, strict=True)
    assert len(records) == 2
    assert records[0].tir is not None and records[1].tir is None
    assert workload_key(records[0].unscheduled()) == task.workload_key
    assert {r.workload_key for r in records} == {task.workload_key}
    assert best is not None and best.cost == min(r.cost for r in records)
    assert replay(best, task.func, task.target).script() != task.func.script()


def test_missing_package_is_named_before_anything_starts(task, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "xgboost" else find(name)
    )
    with pytest.raises(RecordError, match=r"xgboost.*baton-tvm\[tune\]"):
        tuning.tune_task(task, 1, tmp_path / "log.json")
