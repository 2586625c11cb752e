"""What a build reads from the active dispatch contexts."""

from __future__ import annotations

import contextvars
import inspect
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
from tvm.target import Target

from compiler import auto_scheduler, autotvm, partition, relay
from compiler.autotvm import apply_history_best, decode
from compiler.errors import RecordError
from compiler.lowering.selection.schedule_source import ScheduleSource
from compiler.records.auto_scheduler.dispatcher import ApplyHistoryBest, FallbackContext, extracting
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


def sources_of_a_build():
    x = relay.var("x", shape=(4, 16))
    weight = relay.const(np.ones((8, 16), "float32"))
    lib = relay.build(relay.Function([x], relay.nn.dense(x, weight)), "llvm")
    return [kernel.source for kernel in lib.report.kernels], lib.report.notes


def a_dense_log():
    shapes = ["TENSOR", [4, 16], "float32"], ["TENSOR", [8, 16], "float32"]
    tiles = [["tile_y", "sp", [-1, 1, 4]], ["tile_x", "sp", [-1, 1, 8]], ["tile_k", "sp", [-1, 1]]]
    line = {
        "input": ["llvm", "dense_nopack.x86", [*shapes, None, "float32"], {}],
        "config": {"index": 0, "code_hash": None, "entity": tiles},
        "result": [[1e-3], 0, 1.0, 2.0],
        "version": 0.2,
    }
    return apply_history_best([decode(json.dumps(line))])


def test_a_build_in_a_pool_without_the_log_of_its_maker_warns(caplog):
    with a_dense_log(), ThreadPoolExecutor(1) as pool:
        sources, notes = pool.submit(sources_of_a_build).result()
        assert sources == ["topi:fallback"]
        assert any("no AutoTVM dispatch context, but another thread has" in n for n in notes)
        assert "submit contextvars.copy_context().run" in caplog.text
        caplog.clear()
        context = contextvars.copy_context()
        sources, notes = pool.submit(context.run, sources_of_a_build).result()
        assert sources == ["topi:<records>:1"] and not caplog.text
        with FallbackContext(), a_dense_log():
            assert not any("another thread" in note for note in sources_of_a_build()[1])
    assert sources_of_a_build()[0] == ["topi:fallback"] and not caplog.text


@pytest.mark.parametrize("family", [autotvm, auto_scheduler])
def test_a_user_defined_context_is_asked_for_every_workload(family):
    asked = []

    class Watch(family.DispatchContext):
        def _query_inside(self, target, workload, *_):
            asked.append(workload)

    with a_dense_log(), Watch():
        assert sources_of_a_build()[0] == ["topi:<records>:1"]
    assert asked


def test_the_answer_of_a_user_defined_context_is_used_or_rejected():
    class Answer(autotvm.DispatchContext):
        def _query_inside(self, target, workload):
            return given if workload[0] == "dense_nopack.x86" else None

    task = autotvm.task.create(
        "dense_nopack.x86", (("TENSOR", (4, 16), "float32"), ("TENSOR", (8, 16), "float32"), None,
                             "float32"), "llvm",
    )  # fmt: skip
    given = task.config_space.get(0)
    with Answer():
        assert sources_of_a_build()[0] == ["topi:space:0"]
    given = autotvm.task.ApplyFixedConfig([task], task.name)
    with given:
        assert sources_of_a_build()[0] == ["topi:<dense_nopack.x86>:0"]
    with Answer(), pytest.raises(RecordError, match="returned a ApplyFixedConfig; return a Config"):
        sources_of_a_build()
    with pytest.raises(RecordError, match="no task has the name dense"):
        autotvm.task.ApplyFixedConfig([task], ["dense"])


@pytest.mark.parametrize("family", [autotvm, auto_scheduler])
def test_a_user_defined_context_without_a_query_names_what_it_lacks(family):
    class Empty(family.DispatchContext):
        pass

    with Empty(), pytest.raises(RecordError, match="Empty has no records: define _query_inside"):
        sources_of_a_build()


def test_a_subgraph_target_of_only_a_kind_is_the_builds():
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    lib = relay.build(partition.partition(mod, "llvm"), "llvm -mcpu=x86-64-v3")
    (info,) = lib.partition_info().values()
    assert info["target"] == lib.report.target == "llvm -keys=cpu -mcpu=x86-64-v3"
