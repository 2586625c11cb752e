"""auto_scheduler records: keys, reading, writing, replay of a log tuned by `tuning.tune_task`."""

from __future__ import annotations

import dataclasses
import json
import logging
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.target import Target

from compiler.errors import RecordError
from compiler.records.auto_scheduler.record import (
    Record,
    RecordToFile,
    load_best_record,
    load_records,
    parse_line,
    replay,
    save_records,
    workload_key,
)
from compiler.records.auto_scheduler.workload import canonical, distance

LOG = Path(__file__).parent / "data" / "three_kernels.json"
ANSOR = (
    '{"i": [["[\\"matmul\\", 8, 8, 8]", "llvm -keys=cpu", [1, 64, 64, 0, 0, 0, 0, 0], "", 0, []], '
    '[[], [["SP", 2, 0, 8, [4], 1]]]], "r": [[1e-05], 0, 0.5, 1600000000], "v": "v0.6"}'
)


def matmul_relu(n=64, k=128, m=96, prefix="", dtype="float32", name="T_matmul"):
    a = te.placeholder((n, k), name=prefix + "a", dtype=dtype)
    b = te.placeholder((k, m), name=prefix + "b", dtype=dtype)
    r = te.reduce_axis((0, k), name=prefix + "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name=name)
    return te.create_prim_func([a, b, topi.nn.relu(c)])


def conv2d_add_relu(x, w, b):
    """float64 reference of the log's second kernel: 3x3, padding 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + b, 0)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


REFERENCE = {
    2: softmax,
    3: lambda a, b: np.maximum(a @ b, 0),
    4: conv2d_add_relu,
}  # by number of operands
RECORDS = load_records(LOG)
FUNCS = {r.workload_key: r.unscheduled() for r in RECORDS if r.tir is not None}


def run(func, *inputs):
    built = tvm.compile(tvm.IRModule({"main": func}), target="llvm")
    output = func.params[-1]
    out = tvm.runtime.empty([int(d) for d in output.shape], str(output.dtype))
    built["main"](*[tvm.runtime.tensor(x) for x in inputs], out)
    return out.numpy()


def test_log_holds_three_kernels_with_their_functions():
    assert len(FUNCS) == 3
    assert {r.workload_key for r in RECORDS} == set(FUNCS)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.source.rsplit(":")[-1])
def test_replayed_record_computes_the_right_numbers(record):
    func = FUNCS[record.workload_key]
    scheduled = replay(record, func, Target(record.target))
    assert not tvm_ffi.structural_equal(scheduled.body, canonical(func).body)
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in p.shape] for p in func.params[:-1]]
    inputs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    expected = REFERENCE[len(func.params)](*[x.astype("float64") for x in inputs])
    np.testing.assert_allclose(run(scheduled, *inputs), expected, rtol=1e-4, atol=1e-5)


def test_replay_keeps_name_and_attributes_of_the_function():
    record = load_best_record(LOG, workload_key(matmul_relu()))
    func = matmul_relu(prefix="other_", name="dense").with_attrs(
        {"global_symbol": "fused_dense_relu", "op_pattern": 4}
    )
    scheduled = replay(record, func, Target("llvm"))
    assert scheduled.attrs["global_symbol"] == "fused_dense_relu"
    assert scheduled.attrs["op_pattern"] == 4
    assert "parallel" in scheduled.script() or "vectorized" in scheduled.script()


def test_replay_is_the_same_every_time():
    record = RECORDS[0]
    func = FUNCS[record.workload_key]
    assert replay(record, func).script() == replay(record, func).script()


def test_record_of_another_kernel_is_refused_with_its_place():
    record = next(r for r in RECORDS if len(FUNCS[r.workload_key].params) == 2)
    with pytest.raises(RecordError, match=r"three_kernels\.json:\d+.*can't be replayed"):
        replay(record, matmul_relu())


@pytest.mark.parametrize(
    "trace",
    [
        [[["GetSBlock", [], ["nope", "main"], ["b0"]]], []],
        [[["NoSuchStep", [], [], []]], []],
        [[["GetLoops", ["b7"], [], ["l0"]]], []],
        [[["GetSBlock"]], []],
        [["x"], []],
    ],
)
def test_damaged_trace_is_a_record_error(trace):
    record = dataclasses.replace(RECORDS[0], trace=trace)
    with pytest.raises(RecordError, match="can't be replayed"):
        replay(record, FUNCS[record.workload_key])


@pytest.mark.parametrize(
    "damage",
    [
        lambda instructions, decisions: ([[0, [], [], []]], []),
        lambda instructions, decisions: (instructions, [[8209, [1, 2]]]),
        lambda instructions, decisions: (instructions, [[0, [1, 2]]]),
        lambda instructions, decisions: (instructions, [[at, [0]] for at, _ in decisions]),
        lambda instructions, decisions: (instructions, [[at, None] for at, _ in decisions]),
        lambda instructions, decisions: (
            [
                [kind, inputs, [None for _ in attrs], out]
                for kind, inputs, attrs, out in instructions
            ],
            decisions,
        ),
        lambda instructions, decisions: (
            [
                [kind, [None for _ in inputs], attrs, out]
                for kind, inputs, attrs, out in instructions
            ],
            decisions,
        ),
    ],
)
def test_a_trace_at_which_tvm_would_crash_is_refused(damage):
    record = dataclasses.replace(RECORDS[0], trace=damage(*RECORDS[0].trace))
    with pytest.raises(RecordError, match=r"can't be replayed: .*(trace|decision)"):
        replay(record, FUNCS[record.workload_key])


def test_key_ignores_names_and_attributes():
    key = workload_key(matmul_relu())
    assert workload_key(matmul_relu(prefix="other_", name="dense")) == key
    named = matmul_relu().with_attrs({"global_symbol": "f", "op_pattern": 4})
    assert workload_key(named) == key
    assert workload_key(canonical(named)) == key


@pytest.mark.parametrize("other", [{"n": 32}, {"k": 64}, {"dtype": "float16"}])
def test_key_tells_shapes_and_types_apart(other):
    assert workload_key(matmul_relu(**other)) != workload_key(matmul_relu())


def test_key_tells_padding_and_stride_apart():
    def conv(stride, size):
        x = te.placeholder((1, 4, size, size), name="x")
        w = te.placeholder((4, 4, 3, 3), name="w")
        y = topi.nn.conv2d(x, w, stride, 1, 1, "NCHW")
        return te.create_prim_func([x, w, y])

    assert workload_key(conv(1, 8)) != workload_key(conv(2, 16))


def test_key_is_the_same_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from compiler.records.auto_scheduler.record import load_records, workload_key\n"
        "for r in load_records(sys.argv[2]):\n"
        "    print(workload_key(r.unscheduled()) if r.tir else '')\n"
    )
    root = str(Path(__file__).parents[3])
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, root, str(LOG)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [r.workload_key for r in RECORDS if r.tir]


def test_dynamic_operand_has_no_key():
    n = te.var("n")
    a = te.placeholder((n, 4), name="a")
    with pytest.raises(RecordError, match="not a constant"):
        workload_key(te.create_prim_func([a, topi.nn.relu(a)]))


def test_distance_follows_ansors_rule():
    small, large = workload_key(matmul_relu(32, 64, 32)), workload_key(matmul_relu(64, 64, 96))
    assert distance(small, small) == 1
    # a 2x, b 3x along m, and the output both
    assert distance(large, small) == 2 * 3 * (2 * 3)
    assert distance(small, large) == float("inf")
    assert distance(large, workload_key(matmul_relu(48, 64, 96))) == float("inf")
    softmax_key = next(k for k in FUNCS if len(FUNCS[k].params) == 2)
    assert distance(large, softmax_key) == float("inf")


def record(key="k", cost=1e-3, **fields):
    values = {"target": {"kind": "llvm"}, "trace": [[], []], "costs": (cost,), "timestamp": 1.0}
    return Record(key, **{**values, **fields})


def test_line_written_is_the_record_read(tmp_path):
    log = tmp_path / "folder" / "a.json"
    RecordToFile(log)([RECORDS[0]])
    (read,) = load_records(log)
    assert read == dataclasses.replace(RECORDS[0], source="auto_scheduler:a.json:1")
    assert read.unscheduled() is not None


def test_best_record_is_the_cheapest_successful_one_of_workload_and_kind(tmp_path):
    log = tmp_path / "a.json"
    save_records(
        log,
        [
            record(cost=3e-3),
            record(cost=1e-9, costs=(), error=4),
            record(cost=1e-3),
            record(cost=1e-3, timestamp=9.0),
            record("other", cost=1e-6),
            record(cost=1e-7, target={"kind": "cuda"}),
        ],
    )
    assert load_best_record(log, "k", "llvm").source.endswith(":3")
    assert load_best_record(log).source.endswith(":6")
    assert load_best_record(log, "absent") == (None, None)


def test_line_cut_off_by_a_kill_loses_nothing_before_or_after_it(tmp_path, caplog):
    log = tmp_path / "a.json"
    save_records(log, [record("first"), record("second")])
    whole = log.read_bytes()
    log.write_bytes(whole[:-30])
    save_records(log, [record("third")])
    with caplog.at_level(logging.WARNING):
        assert [r.workload_key for r in load_records(log)] == ["first", "third"]
    assert "a.json: skipped 1" in caplog.text and "line 2" in caplog.text


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_log_cut_anywhere_still_reads(tmp_path, cut):
    log = tmp_path / "a.json"
    save_records(log, [record("first"), record("second")])
    log.write_bytes(log.read_bytes()[:-cut])
    assert load_records(log)[0].workload_key == "first"


def _append(log, name):
    for i in range(50):
        save_records(log, [record(f"{name}-{i}", tir="x" * 5000)])


def test_lines_of_several_processes_do_not_mix(tmp_path):
    log = tmp_path / "a.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(log, name)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    keys = [r.workload_key for r in load_records(log, strict=True)]
    assert sorted(keys) == sorted(f"{name}-{i}" for name in "abcd" for i in range(50))


def test_ansor_lines_are_read_among_those_of_baton(tmp_path, caplog):
    log = tmp_path / "mixed.json"
    log.write_text(f"{ANSOR}\n{record().to_line()}\n{ANSOR}\n")
    with caplog.at_level(logging.WARNING):
        kinds = [type(each).__name__ for each in load_records(log)]
    assert kinds == ["AnsorRecord", "Record", "AnsorRecord"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": 2}, "version 2"),
        ({"kind": "other"}, "not an auto_scheduler record"),
        ({"costs": []}, "not seconds"),
        ({"costs": [float("nan")]}, "not seconds"),
        ({"trace": 3}, "field"),
        ({"workload": {}}, "field"),
        ({"target": {"kind": "toaster"}}, "toaster"),
        ({"target": None}, "NoneType is not a target"),
    ],
)
def test_malformed_line_is_a_record_error(change, reason):
    row = {**json.loads(record().to_line()), **change}
    with pytest.raises(RecordError, match=reason):
        parse_line(json.dumps(row))


def test_strict_names_file_and_line(tmp_path):
    log = tmp_path / "a.json"
    log.write_text(record().to_line() + "\n[]\n")
    with pytest.raises(RecordError, match=r"a\.json:2: not a JSON object"):
        load_records(log, strict=True)


def test_foreign_and_missing_files_are_record_errors(tmp_path):
    with pytest.raises(RecordError, match="can't be read"):
        load_records(tmp_path / "none.json")
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(RecordError, match="no auto_scheduler record"):
        load_records(other)
    with pytest.raises(RecordError, match="can't be written"):
        save_records(tmp_path, [record()])


def test_embedded_function_must_be_the_workload_of_the_key():
    with pytest.raises(RecordError, match="does not hold"):
        record().unscheduled()
    wrong = dataclasses.replace(RECORDS[0], workload_key="another")
    with pytest.raises(RecordError, match="not the workload"):
        wrong.unscheduled()
    with pytest.raises(RecordError, match="can't be read"):
        record(tir="{}").unscheduled()
