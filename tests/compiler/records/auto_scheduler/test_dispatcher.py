"""Dispatch contexts of auto_scheduler: matching, nesting, threads, exceptions."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest
from tvm import te, topi
from tvm.target import Target

from compiler import auto_scheduler
from compiler.errors import RecordError
from compiler.records.auto_scheduler.dispatcher import (
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    extracting,
    is_extracting,
)
from compiler.records.auto_scheduler.record import (
    Record,
    load_records,
    replay,
    save_records,
    workload_key,
)

LOG = Path(__file__).parent / "data" / "three_kernels.json"
CPU = Target("llvm")


def record(key="f.s.4x4", cost=1e-3, target=None, error=0):
    return Record(key, target or {"kind": "llvm"}, [[], []], (cost,), error, 1.0)


def test_every_workload_of_a_real_log_finds_its_cheapest_record():
    context = ApplyHistoryBest(LOG)
    records = load_records(LOG)
    for key in {r.workload_key for r in records}:
        found = context.query(CPU, key)
        assert found.cost == min(r.cost for r in records if r.workload_key == key)
        assert found.source.startswith("auto_scheduler:three_kernels.json:")
    assert context.query(CPU, "unknown.key.1") is None
    assert context.query(Target("cuda"), records[0].workload_key) is None


def test_failed_records_are_never_used():
    assert ApplyHistoryBest([record(error=4)]).query(CPU, "f.s.4x4") is None


def test_model_goes_before_a_cheaper_record_of_another_model():
    mine = record(cost=1e-3, target={"kind": "llvm", "model": "mine"})
    fast = record(cost=1e-6, target={"kind": "llvm", "model": "fast"})
    context = ApplyHistoryBest([fast, mine])
    assert context.query(Target({"kind": "llvm", "model": "mine"}), "f.s.4x4") is mine
    assert context.query(CPU, "f.s.4x4") is fast


def test_records_come_from_files_and_objects_mixed(tmp_path):
    log = tmp_path / "a.json"
    save_records(log, [record("f.s.1"), record("g.s.1")])
    context = ApplyHistoryBest([log, None, record("h.s.1")])
    assert all(context.query(CPU, f"{name}.s.1") for name in "fgh")
    with pytest.raises(RecordError, match="records has a int"):
        ApplyHistoryBest([3])
    with pytest.raises(RecordError, match="can't be read"):
        ApplyHistoryBest(tmp_path / "none.json")


def test_n_lines_limits_what_is_taken(tmp_path):
    log = tmp_path / "a.json"
    save_records(log, [record("f.s.1"), record("g.s.1"), record("h.s.1")])
    context = ApplyHistoryBest([log, record("i.s.1")], n_lines=2)
    assert [bool(context.query(CPU, f"{name}.s.1")) for name in "fghi"] == [1, 1, 0, 0]


def matmul(n, k, m):
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return te.create_prim_func([a, b, topi.nn.relu(c)])


def test_compatible_record_serves_multiples_of_its_shapes_only_when_asked():
    func = matmul(128, 128, 192)
    key = workload_key(func)
    assert ApplyHistoryBest(LOG).query(CPU, key) is None
    found = ApplyHistoryBest(LOG, include_compatible=True).query(CPU, key)
    assert "64x128,128x96" in found.workload_key
    scheduled = replay(found, func, CPU)
    assert scheduled.script() != func.script()
    odd = workload_key(matmul(100, 128, 192))
    assert ApplyHistoryBest(LOG, include_compatible=True).query(CPU, odd) is None


def test_inner_context_goes_first_and_the_outer_one_fills_in():
    inner, outer = record("f.s.1", 1e-3), record("f.s.1", 1e-6)
    other = record("g.s.1")
    with ApplyHistoryBest([outer, other]), ApplyHistoryBest([inner]):
        assert DispatchContext.current.query(CPU, "f.s.1") is inner
        assert DispatchContext.current.query(CPU, "g.s.1") is other
        with FallbackContext():
            assert DispatchContext.current.query(CPU, "g.s.1") is None
    assert isinstance(DispatchContext.current, FallbackContext)


def test_one_context_may_be_entered_twice_and_is_left_on_exceptions():
    context = ApplyHistoryBest([])
    with pytest.raises(ZeroDivisionError), context, context:
        assert DispatchContext.current is context
        raise ZeroDivisionError
    assert isinstance(DispatchContext.current, FallbackContext)


def test_contexts_and_extraction_are_not_seen_by_other_threads():
    seen = []

    def look():
        seen.append((type(DispatchContext.current), is_extracting()))

    with ApplyHistoryBest([]), extracting():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert is_extracting()
    assert seen == [(FallbackContext, False)]
    assert not is_extracting()


def test_extraction_mark_is_removed_on_exceptions():
    with pytest.raises(ZeroDivisionError), extracting():
        raise ZeroDivisionError
    assert not is_extracting()


def test_records_are_taken_in_every_form_of_tvm():
    pairs = [tuple(each) for each in load_records(LOG)]
    key = pairs[0][0].task.workload_key
    cost = ApplyHistoryBest(LOG).query(CPU, key).cost
    for records in (pairs, os.fsencode(LOG), auto_scheduler.RecordReader(LOG), [None, LOG]):
        assert ApplyHistoryBest(records).query(CPU, key, True, None, "main").cost == cost
    assert ApplyHistoryBest(pairs[0]).query(CPU, key) is not None
    assert ApplyHistoryBest(None).query(CPU, key) is None
    for other in (5, [5], io.StringIO()):
        with pytest.raises(RecordError, match="give paths of logs, Records, or pairs"):
            ApplyHistoryBest(other)


def test_a_log_may_go_once_the_context_is_made(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(LOG.read_bytes())
    context, key = ApplyHistoryBest(path), load_records(LOG)[0].workload_key
    path.write_text("another")
    found = context.query(CPU, key)
    path.unlink()
    assert found == context.query(CPU, key) and found is not None


def test_a_schedule_set_by_hand_goes_before_the_records():
    context, by_hand = ApplyHistoryBest([record(cost=1e-6)]), record(cost=1.0)
    context.update(CPU, "f.s.4x4", by_hand)
    assert context.query(CPU, "f.s.4x4") is by_hand and context.content_digest() is None
    with pytest.raises(RecordError, match="update takes a Record"):
        context.update(CPU, "f.s.4x4", "tiled")
