"""MetaSchedule's database folders."""

from __future__ import annotations

import base64
import json

import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from compiler.auto_scheduler.metaschedule import is_database, read_database, write_database
from compiler.errors import RecordError
from compiler.records.auto_scheduler.record import Record, replay
from compiler.records.auto_scheduler.workload import canonical, workload_key

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


def matmul():
    x, w = te.placeholder((8, 16), name="x"), te.placeholder((16, 8), name="w")
    k = te.reduce_axis((0, 16), name="k")
    product = te.compute((8, 8), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    return te.create_prim_func([x, w, product])


@pytest.fixture
def folder(tmp_path):
    """A database as TVM writes it, with block names of the user's."""
    mod = tvm.IRModule({"main": matmul()})
    schedule = Schedule(mod)
    i, _, _ = schedule.get_loops(schedule.get_sblock("product"))
    schedule.split(i, [2, 4])
    database = ms.database.JSONDatabase(
        str(tmp_path / "database_workload.json"), str(tmp_path / "database_tuning_record.json")
    )
    args = ms.arg_info.ArgInfo.from_entry_func(mod)
    workload = database.commit_workload(mod)
    database.commit_tuning_record(
        ms.database.TuningRecord(schedule.trace, workload, [2e-6, 4e-6], TARGET, args)
    )
    return tmp_path, schedule


def test_a_folder_is_read_as_records_that_replay(folder):
    path, _ = folder
    (record,) = read_database(path)
    assert record.workload_key == workload_key(matmul())
    assert record.costs == (2e-6, 4e-6) and record.cost == 3e-6
    loops = Schedule(replay(record, matmul(), TARGET))
    block = loops.get_child_blocks(loops.get_sblock("root"))[0]
    extents = [int(loops.get(loop).extent) for loop in loops.get_loops(block)]
    assert extents == [2, 4, 8, 16]


def test_records_that_are_written_are_read_again(folder, tmp_path):
    (record,) = read_database(folder[0])
    out = tmp_path / "out"
    assert not is_database(out)
    untuned = Record(record.workload_key, record.target, [[], []], (1.0,), untuned=True)
    assert write_database(out, [record, untuned]) == 1
    (again,) = read_database(out)
    assert (again.workload_key, again.trace, again.costs) == (
        record.workload_key, record.trace, record.costs,
    )  # fmt: skip
    assert canonical(again.unscheduled()).script() == canonical(matmul()).script()


def test_what_is_no_database_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"database_workload\.json"):
        read_database(tmp_path)
    (tmp_path / "database_workload.json").write_text(json.dumps(["x", "y"]) + "\n")
    (tmp_path / "database_tuning_record.json").write_text("{}\n")
    with pytest.raises(RecordError, match=r"database_workload\.json:1"):
        read_database(tmp_path)
    (tmp_path / "database_workload.json").write_text("")
    with pytest.raises(RecordError, match=r"database_tuning_record\.json:1"):
        read_database(tmp_path)


def test_a_workload_at_which_tvm_would_crash_is_refused(folder):
    path = folder[0] / "database_workload.json"
    digest, module = json.loads(path.read_text().splitlines()[0])
    data = base64.b64decode(module)
    document = json.loads(data[8:])
    number = next(n for n, node in enumerate(document["nodes"]) if node["type"] == "ir.IntImm")
    document["nodes"][number]["data"]["value"] = number
    text = json.dumps(document).encode()
    module = base64.b64encode(len(text).to_bytes(8, "little") + text).decode()
    path.write_text(json.dumps([digest, module]) + "\n")
    with pytest.raises(RecordError, match=r"database_workload\.json:1: .*not before it"):
        read_database(folder[0])


def test_a_module_that_an_older_tvm_wrote_is_refused_with_the_version(folder):
    path = folder[0] / "database_workload.json"
    old = {"root": 1, "nodes": [{}], "b64ndarrays": [], "attrs": {"tvm_version": "0.12.0"}}
    text = json.dumps(old).encode()
    module = base64.b64encode(len(text).to_bytes(8, "little") + text).decode()
    path.write_text(json.dumps(["1", module]) + "\n")
    with pytest.raises(RecordError, match=r"json:1: .*TVM 0\.12\.0 wrote; tune again"):
        read_database(folder[0])


def test_a_record_without_a_target_is_refused(folder):
    path = folder[0] / "database_tuning_record.json"
    number, (trace, seconds, _, args) = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps([number, [trace, seconds, None, args]]) + "\n")
    with pytest.raises(RecordError, match="does not say its target"):
        read_database(folder[0])


@pytest.mark.parametrize(
    "row",
    [
        "{}",
        "[null, null]",
        "[0, [[[0], []], null, null, null]]",
        "[0, [[[], []], [null], {}, []]]",
        '[0, [[[], []], [1.0], {}, [["TENSOR", null, [1]]]]]',
    ],
)
def test_a_line_at_which_tvm_would_crash_is_refused_by_its_number(folder, row):
    path = folder[0] / "database_tuning_record.json"
    path.write_text(path.read_text() + row + "\n")
    with pytest.raises(RecordError, match=r"database_tuning_record\.json:2"):
        read_database(folder[0])
