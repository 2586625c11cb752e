"""What a build reads from the active dispatch contexts."""

from __future__ import annotations

import inspect
import json
import threading

import pytest
import tvm
from tvm.target import Target

from compiler.autotvm import apply_history_best, decode
from compiler.lowering.selection.schedule_source import ScheduleSource
from compiler.records.auto_scheduler.dispatcher import (
    ApplyHistoryBest,
    FallbackContext,
    extracting,
)
from compiler.records.auto_scheduler.record import Record

CPU = Target("llvm")
WORKLOAD = ("dense_nopack.x86", ("TENSOR", (1, 8), "float32"))
KEY = "f.s.1x8"


@pytest.fixture
def autotvm_log():
    line = {
        "input": ["llvm", WORKLOAD[0], list(WORKLOAD[1:]), {}],
        "config": {"index": 0, "code_hash": None, "entity": [["tile", "ot", 3]]},
        "result": [[1e-3], 0, 1.0, 2.0],
        "version": 0.2,
    }
    return apply_history_best([decode(json.dumps(line))])


@pytest.fixture
def auto_scheduler_log():
    return ApplyHistoryBest([Record(KEY, {"kind": "llvm"}, [[], []], (1e-3,))])


def answers(source):
    """(use_topi_schedule, an AutoTVM config is found, an auto_scheduler record is found)."""
    return (
        source.use_topi_schedule,
        source.autotvm_query(CPU, WORKLOAD) is not None,
        source.auto_scheduler_query(CPU, KEY) is not None,
    )


def test_without_context_topi_schedules_with_fallback_values():
    assert answers(ScheduleSource.from_contexts()) == (True, False, False)


def test_under_an_autotvm_log_topi_schedules_with_its_configs(autotvm_log):
    with autotvm_log:
        assert answers(ScheduleSource.from_contexts()) == (True, True, False)


def test_under_an_auto_scheduler_log_its_records(auto_scheduler_log):
    with auto_scheduler_log:
        assert answers(ScheduleSource.from_contexts()) == (False, False, True)


def test_under_both_records_first_and_autotvm_configs_for_the_rest(autotvm_log, auto_scheduler_log):
    with autotvm_log, auto_scheduler_log:
        assert answers(ScheduleSource.from_contexts()) == (False, True, True)
    with auto_scheduler_log, autotvm_log:
        assert answers(ScheduleSource.from_contexts()) == (False, True, True)


def test_inside_task_extraction_nothing_is_scheduled(autotvm_log, auto_scheduler_log):
    with autotvm_log, auto_scheduler_log, extracting():
        assert answers(ScheduleSource.from_contexts()) == (False, False, False)
    with extracting():
        assert answers(ScheduleSource.from_contexts()) == (False, False, False)


def test_auto_scheduler_log_without_any_record_still_counts_as_active():
    with ApplyHistoryBest([]):
        assert answers(ScheduleSource.from_contexts()) == (False, False, False)


def test_fallback_context_hides_the_log_around_it(auto_scheduler_log):
    with auto_scheduler_log, FallbackContext():
        assert answers(ScheduleSource.from_contexts()) == (True, False, False)


def test_source_keeps_its_contexts_when_they_are_left_and_in_other_threads(
    autotvm_log, auto_scheduler_log
):
    with autotvm_log, auto_scheduler_log:
        source = ScheduleSource.from_contexts()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(answers(source)))
    thread.start()
    thread.join()
    assert seen == [(False, True, True)]
    assert answers(ScheduleSource.from_contexts()) == (True, False, False)


def test_found_and_missing_workloads_are_counted_once_each(auto_scheduler_log):
    with auto_scheduler_log:
        source = ScheduleSource.from_contexts()
    for key in (KEY, KEY, "g.s.1", "h.s.1"):
        source.auto_scheduler_query(CPU, key)
    source.autotvm_query(CPU, WORKLOAD)
    source.autotvm_query(CPU, [WORKLOAD[0], list(WORKLOAD[1])])
    assert source.auto_scheduler_queries.found == {KEY: "auto_scheduler:<record>:1"}
    assert source.auto_scheduler_queries.missing == {"g.s.1", "h.s.1"}
    assert source.autotvm_queries.missing == {WORKLOAD}


@pytest.mark.parametrize("key", ["relay.backend.use_topi_schedule", "use_topi_schedule"])
def test_use_topi_schedule_is_no_pass_context_key(key):
    with pytest.raises(AttributeError, match="Invalid config option"):
        tvm.transform.PassContext(config={key: True})


def test_use_topi_schedule_is_no_argument():
    assert not inspect.signature(ScheduleSource.from_contexts).parameters
