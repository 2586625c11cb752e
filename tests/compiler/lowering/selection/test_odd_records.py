"""A record whose knobs do not fit its template is skipped with a warning; the next one is used."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import auto_scheduler, autotvm, relay
from compiler.records.auto_scheduler.record import Record

ARGS = [
    ["TENSOR", [1, 8, 14, 14], "float32"],
    ["TENSOR", [16, 8, 3, 3], "float32"],
    [1, 1],
    [1, 1, 1, 1],
    [1, 1],
    "NCHW",
    "NCHW",
    "float32",
]
GOOD = [
    ["tile_ic", "sp", [-1, 8]],
    ["tile_oc", "sp", [-1, 16]],
    ["tile_ow", "sp", [-1, 7]],
    ["unroll_kw", "ot", False],
]
ODD = {
    "empty": [],
    "a knob missing": GOOD[:2],
    "factor 0": [GOOD[0], ["tile_oc", "sp", [-1, 0]], *GOOD[2:]],
    "two open factors": [GOOD[0], ["tile_oc", "sp", [-1, -1]], *GOOD[2:]],
    "another kind of knob": [["tile_ic", "ot", 8], *GOOD[1:]],
}


@pytest.mark.parametrize("name", ["good", *ODD])
def test_a_record_with_an_odd_knob_is_skipped_for_the_next(name, tmp_path, caplog):
    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32")
    x = relay.var("x", shape=(1, 8, 14, 14))
    mod = relay.Function([x], relay.nn.conv2d(x, relay.const(weights), padding=(1, 1)))
    row = {
        "input": ["llvm", "conv2d_NCHWc.x86", ARGS, {}],
        "config": {"index": 0, "code_hash": None, "entity": ODD.get(name, GOOD)},
        "result": [[1e-4], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.9",
    }
    log = tmp_path / "odd.log"
    config = {"index": 0, "code_hash": None, "entity": GOOD}
    slower = {**row, "config": config, "result": [[2e-4], 0, 1.0, 1.0]}
    log.write_text("".join(json.dumps(line) + "\n" for line in (row, slower)))
    with autotvm.apply_history_best(str(log)):
        lib = relay.build(mod, "llvm")
    used = {kernel.source for kernel in lib.report.kernels} - {"topi:fallback"}
    assert used == {"topi:odd.log:1" if name == "good" else "topi:odd.log:2"}
    assert ("odd.log:1: the record can't be used" in caplog.text) is (name != "good")
    data = np.random.default_rng(1).standard_normal((1, 8, 14, 14)).astype("float32")
    (result,) = lib.session().run({"x": data}).values()
    padded = np.pad(data.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, weights)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def dense_row(m, tiles, cost, target="llvm", error=0):
    args = [["TENSOR", [m, 16], "float32"], ["TENSOR", [8, 16], "float32"], None, "float32"]
    return {
        "input": [target, "dense_nopack.x86", args, {}],
        "config": {"index": 0, "code_hash": None, "entity": tiles},
        "result": [[cost], error, 1.0, 1.0],
        "version": 0.2,
    }


TILES = [["tile_y", "sp", [-1, 1, 4]], ["tile_x", "sp", [-1, 1, 8]], ["tile_k", "sp", [-1, 1]]]


def dense(m=4):
    x = relay.var("x", shape=(m, 16))
    return relay.Function([x], relay.nn.dense(x, relay.const(np.ones((8, 16), "float32"))))


def test_the_report_has_a_table_of_the_logs(tmp_path, caplog):
    rows = [
        dense_row(4, TILES[:1], 1e-5),
        dense_row(4, TILES, 2e-5),
        dense_row(4, TILES, 1e-9, error=4),
        dense_row(4, TILES, 1e-9, target="cuda"),
        dense_row(5, TILES, 1e-5),
    ]
    log = tmp_path / "a.log"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with autotvm.apply_history_best(log):
        report = relay.build(dense(), "llvm").report
    (use,) = report.logs
    assert (use.log, use.records, use.for_target, use.matching, use.used) == ("a.log", 5, 3, 2, 1)
    (reason,) = use.skipped
    assert reason.startswith("1: it has no knob 'tile_")
    table = str(report).splitlines()
    assert any(line.split()[:6] == ["a.log", "5", "3", "2", "1", "1"] for line in table)
    assert f"  a.log:{reason}" in table
    assert type(report).from_json(report.to_json()).logs == report.logs
    caplog.clear()
    with autotvm.apply_history_best(log):
        report = relay.build(dense(7), "llvm").report
    (note,) = report.notes
    assert note == (
        "a.log: no record is for this build: 3 of 5 are for its target, and none of these is for "
        "the shapes of its operators"
    )
    assert note in caplog.text


def test_an_untuned_record_is_no_missing_record():
    tasks, _ = auto_scheduler.extract_tasks(dense(), {}, "llvm")
    target = {"kind": "llvm", "keys": ["cpu"]}
    untuned = [Record(t.workload_key, target, [[], []], (1e-6,), untuned=True) for t in tasks]
    with auto_scheduler.ApplyHistoryBest(untuned):
        report = relay.build(dense(), "llvm").report
    assert not report.notes
    (use,) = report.logs
    assert use.skipped == ["1: untuned: no schedule that was measured beats the default kernel"]


def test_the_next_trace_is_used_if_the_best_does_not_replay(caplog):
    (task, *_), _ = auto_scheduler.extract_tasks(dense(), {}, "llvm")
    target = {"kind": "llvm", "keys": ["cpu"]}
    broken = [["GetSBlock", [], ["nothing", "main"], ["b0"]]], []
    records = [
        Record(task.workload_key, target, trace, (cost,), source=f"auto_scheduler:a.json:{line}")
        for line, (trace, cost) in enumerate([([[], []], 2e-6), (broken, 1e-6)], 1)
    ]
    with auto_scheduler.ApplyHistoryBest(records):
        report = relay.build(dense(), "llvm").report
    assert "auto_scheduler:a.json:1" in {kernel.source for kernel in report.kernels}
    assert "a.json:2: skipped: " in caplog.text
    assert report.logs[0].skipped[0].startswith("2: ")


DAMAGED = [None, [], "x", 1 << 40, [0, 0, 0], [-1], [-1, -1, 8], [7, 7, 7]]


@pytest.mark.parametrize("part", ["name", "kind", "value", "row", "entity"])
def test_no_damage_to_a_record_ends_a_build(part, tmp_path):
    damaged = []
    for number, value in enumerate(DAMAGED):
        index = number % len(TILES)
        name, kind, size = TILES[index]
        rows = {
            "name": [value, kind, size],
            "kind": [name, value, size],
            "value": [name, kind, value],
            "row": value,
        }
        tiles = [*TILES[:index], rows.get(part), *TILES[index + 1 :]]
        damaged.append(value if part == "entity" else tiles)
    weight = np.ones((8, 16), "float32")
    data = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
    for number, tiles in enumerate(damaged):
        log = tmp_path / f"{number}.log"
        rows = [dense_row(4, tiles, 1e-6), dense_row(4, TILES, 2e-6)]
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with autotvm.apply_history_best(log):
            lib = relay.build(dense(), "llvm")
        assert any(log.name in kernel.source for kernel in lib.report.kernels), tiles
        (result,) = lib.session().run({"x": data}).values()
        np.testing.assert_allclose(result, data @ weight.T, rtol=1e-4, atol=1e-4)
