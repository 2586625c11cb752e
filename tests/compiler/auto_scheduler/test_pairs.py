"""Records as the pairs that scripts of TVM 0.7 to 0.19 unpack."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import auto_scheduler
from compiler.errors import RecordError


def tripled(n):
    a = te.placeholder((n,), name="a")
    return [a, te.compute((n,), lambda i: a[i] * 3, name="b")]


def doubled_rows():
    a = te.placeholder((4, 8), name="a")
    return [a, te.compute((4, 8), lambda i, j: a[i, j] * 2, name="c")]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("log") / "tripled.json")
    task = auto_scheduler.SearchTask(compute_dag=tripled(32), target="llvm")
    callbacks = [auto_scheduler.RecordToFile(path)]
    task.tune(auto_scheduler.TuningOptions(1, verbose=0, measure_callbacks=callbacks))
    return path


def test_the_best_record_is_unpacked_and_applied(log):
    task = auto_scheduler.SearchTask(compute_dag=tripled(32), target="llvm")
    inp, res = auto_scheduler.load_best_record(log, task.workload_key, tuned=True)
    assert inp.task.workload_key == task.workload_key and inp.task.target.kind.name == "llvm"
    assert res.error_no == 0 and min(res.costs) > 0 and res.timestamp > 0
    sch, args = task.compute_dag.apply_steps_from_state(inp.state)
    assert len(args) == 2
    built = tvm.tirx.build(sch.mod, "llvm")
    a, b = (tvm.runtime.tensor(np.arange(32, dtype="float32")) for _ in range(2))
    built["main"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(32) * 3)
    assert "def apply_trace" in task.compute_dag.print_python_code_from_state(inp.state)
    assert str(inp.state)


def test_logs_are_read_pair_by_pair(log, tmp_path):
    twice = tmp_path / "twice.json"
    twice.write_text(2 * pathlib.Path(log).read_text())
    reader = auto_scheduler.RecordReader(twice)
    pairs = list(reader)
    assert len(pairs) == len(auto_scheduler.load_records(twice)) > 1
    inputs, results = reader.read_lines(max_lines=1, skip_lines=1)
    assert (inputs, results) == ([pairs[1][0]], [pairs[1][1]])


def test_pairs_are_written_and_told_as_lines(log, tmp_path):
    from compiler.auto_scheduler import measure_record as records

    pairs = [tuple(each) for each in auto_scheduler.load_records(log)]
    copy = tmp_path / "copy.json"
    auto_scheduler.save_records(copy, [inp for inp, _ in pairs], [res for _, res in pairs])
    assert copy.read_text() == pathlib.Path(log).read_text()
    inp, res = pairs[0]
    line = records.dump_record_to_string(inp, dataclasses.replace(res, costs=(2.0, 4.0)))
    told, times = records.load_record_from_string(line)
    assert told.state.record.trace == inp.state.record.trace and times.costs == (2.0, 4.0)


def test_a_pair_is_given_its_whole_task(log):
    inp, _ = auto_scheduler.load_best_record(log, tuned=True)
    whole = auto_scheduler.measure.recover_measure_input(inp, rebuild_state=True)
    assert whole.task.workload_key == inp.task.workload_key and whole.state == inp.state
    assert len(whole.task.compute_dag.apply_steps_from_state(whole.state)[1]) == 2


@pytest.mark.parametrize("name", ["registered", "unknown"])
def test_a_pair_of_ansors_has_the_task_of_its_key(name):
    from compiler.records.ansor.record import AnsorRecord

    auto_scheduler.register_workload("registered_of_test_pairs", tripled, override=True)
    record = AnsorRecord(f'["{name}_of_test_pairs", 32]', "llvm -keys=cpu", [], (1.0,))
    inp, _ = record
    if name == "unknown":
        with pytest.raises(RecordError, match="unknown_of_test_pairs"):
            auto_scheduler.recover_measure_input(inp)
    else:
        assert auto_scheduler.recover_measure_input(inp).task.compute_dag.flop_ct == 32


@pytest.mark.parametrize("faster", [0, 1])
def test_a_log_is_distilled_to_the_best_of_each_workload(tmp_path, faster):
    from compiler.records.auto_scheduler.record import Record

    cpu, times = {"kind": "llvm"}, [2.0, 2.0]
    times[faster] = 1.0
    many, few = tmp_path / "many.json", tmp_path / "few.json"
    records = [Record("a", cpu, [[], []], (cost,), timestamp=0.0) for cost in times]
    records += [Record("b", cpu, [[], []], (), error=4), Record("c", cpu, [[], []], (3.0,))]
    auto_scheduler.save_records(many, records)
    few.write_text("what was there before")
    auto_scheduler.measure_record.distill_record_file(many, few)
    left = auto_scheduler.load_records(few, strict=True)
    assert [(each.workload_key, each.costs) for each in left] == [("a", (1.0,)), ("c", (3.0,))]


def test_a_dag_is_made_of_tensors_and_refuses_states_of_others(log):
    dag = auto_scheduler.ComputeDAG(tripled(32))
    assert dag.flop_ct == 32 and "b" in str(dag)
    other = auto_scheduler.ComputeDAG(doubled_rows())
    inp, _ = auto_scheduler.load_best_record(log, tuned=True)
    with pytest.raises(RecordError):
        other.apply_steps_from_state(inp.state)


def test_the_initial_state_schedules_nothing():
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="B")
    dag = auto_scheduler.ComputeDAG([a, b])
    schedule, args = dag.apply_steps_from_state(dag.init_state)
    assert len(args) == 2 and str(dag.get_init_state()).endswith("    B = ...")
    values = np.arange(16, dtype="float32").reshape(4, 4)
    found = tvm.runtime.tensor(np.zeros((4, 4), "float32"))
    tvm.compile(schedule.mod, "llvm")(tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), values + 1)


def test_a_callback_of_ones_own_gets_inputs_and_results(log):
    seen = []

    class Own(auto_scheduler.measure.PythonBasedMeasureCallback):
        def callback(self, policy, inputs, results):
            seen.extend(zip(inputs, results))

    records = list(auto_scheduler.load_records(log))
    auto_scheduler.TuningOptions(measure_callbacks=[Own()]).report(records)
    assert [inp.task.workload_key for inp, _ in seen] == [r.workload_key for r in records]
    assert [result.costs for _, result in seen] == [r.costs for r in records]
