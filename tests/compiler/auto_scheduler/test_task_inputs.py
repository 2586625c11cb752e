"""What tasks are measured on, and computations that are registered by themselves."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from compiler import auto_scheduler
from compiler.auto_scheduler import SearchTask, workload_registry
from compiler.errors import RecordError


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("compiler.auto_scheduler.task_inputs.TASK_INPUT_BUFFER_TABLE", {})


@auto_scheduler.register_workload("test_task_inputs.added", override=True)
def added(size):
    first, second = (te.placeholder((size,), name=name) for name in ("first", "second"))
    return [first, second, te.compute((size,), lambda i: first[i] + second[i], name="sum")]


def of(value):
    return np.full(4, value, "float32")


def test_an_input_is_its_operand_by_name_or_else_by_form():
    task = SearchTask(
        "test_task_inputs.added", (4,), target="llvm",
        task_inputs={"other": of(1), "first": of(2)},
    )  # fmt: skip
    assert task.task_input_names == ["other", "first"]
    first, second, out = task.operand_values
    np.testing.assert_array_equal(first, of(2))
    np.testing.assert_array_equal(second, of(1))
    assert out.shape == (4,)
    assert SearchTask("test_task_inputs.added", (4,), target="llvm").operand_values is None
    with pytest.raises(RecordError, match="no operand is left for 'wide'"):
        SearchTask(compute_dag=added(8), target="llvm", task_inputs={"wide": of(1)})


def test_inputs_are_kept_by_workload_by_default_and_in_files(tmp_path):
    keep, find = auto_scheduler.register_task_input_buffer, auto_scheduler.get_task_input_buffer
    keep("default", "a", of(1))
    assert find("any", "a")[0] == 1
    keep("mine", "a", of(2))
    assert (find("mine", "a")[0], find("any", "a")[0]) == (2, 1)
    assert keep("mine", "a", of(3))[0] == 2
    assert keep("mine", "a", of(3), overwrite=True, save_to_file=True)[0] == 3
    np.save(tmp_path / "elsewhere.npy", of(4))
    assert find("mine", "elsewhere")[0] == 4 and np.load(tmp_path / "a.npy")[0] == 3
    with pytest.raises(RecordError, match="'nothing' of 'mine' is not registered"):
        find("mine", "nothing")
    with pytest.raises(RecordError, match="its name is no file's"):
        find("mine", "../a")


def test_a_record_names_the_inputs_and_its_task_finds_them_again(tmp_path):
    task = SearchTask(
        "test_task_inputs.added", (4,), target="llvm", task_inputs={"second": of(5)},
        layout_rewrite_option=auto_scheduler.LayoutRewriteOption.NO_REWRITE,
    )  # fmt: skip
    log = tmp_path / "log.json"
    state = task.compute_dag.get_init_state()
    given = auto_scheduler.MeasureInput(task, state)
    auto_scheduler.save_records(log, [given], [auto_scheduler.MeasureResult((1.0,), 0)])
    inp, _ = auto_scheduler.load_best_record(log, task.registered_key, "llvm", tuned=True)
    again = auto_scheduler.recover_measure_input(inp).task
    assert again.task_input_names == ["second"] and again.layout_rewrite_option == 0
    np.testing.assert_array_equal(again.operand_values[1], of(5))


def test_a_computation_is_registered_under_its_key_and_told_to_another_process():
    key = workload_registry.register_workload_tensors("test_task_inputs.by_key", added(4))
    task = SearchTask(workload_key=key, target="llvm")
    assert task.workload_key == SearchTask(compute_dag=added(4), target="llvm").workload_key
    with pytest.raises(RecordError, match="registered already"):
        workload_registry.register_workload_tensors(key, added(4), override=False)

    told = [
        workload_registry.serialize_workload_registry_entry(each)
        for each in (key, '["test_task_inputs.added", 4]')
    ]
    entries = workload_registry.WORKLOAD_FUNC_REGISTRY
    before = {name: entries.pop(name) for name, _ in told}
    with pytest.raises(RecordError):
        SearchTask(workload_key=key, target="llvm")
    for each in told:
        workload_registry.deserialize_workload_registry_entry(each)
    assert SearchTask(workload_key=key, target="llvm").workload_key == task.workload_key
    assert entries["test_task_inputs.added"] is before["test_task_inputs.added"]
