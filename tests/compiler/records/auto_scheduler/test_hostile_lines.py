"""A bad line costs a log that line, whatever is wrong with it."""

from __future__ import annotations

import json
import logging
import math

import pytest

from compiler.auto_scheduler import ApplyHistoryBest
from compiler.errors import RecordError
from compiler.records.ansor.record import AnsorRecord, decode_key
from compiler.records.auto_scheduler.record import Record, load_best_record, load_records
from compiler.records.log_target import log_target
from tests.compiler.hostile_json import variants

KEY, ANSOR_KEY = "0123.4567.8x8,8", '["12b88bedece6984af589a28b43e0f3c4", 8, 8]'
CPU = log_target("llvm -keys=cpu")


def own(costs=(2e-5,)):
    row = Record(KEY, {"kind": "llvm", "keys": ["cpu"]}, [[["x", [1]]], [[0, [1]]]], tuple(costs))
    return row.to_line()


def ansors(costs=(2e-5,)):
    task = [ANSOR_KEY, "llvm -keys=cpu", [1, 64, 64, 0, 0, 0, 0, 0], "", 0, []]
    steps = [["SP", 2, 0, 8, [4], 1], ["AN", 1, 0, 3]]
    row = {"i": [task, [[], steps]], "r": [list(costs), 0, 0.5, 1600000000], "v": "v0.6"}
    return json.dumps(row)


def best_of(log):
    """Source of the record that a build would take of a log with one kind of lines."""
    context = ApplyHistoryBest(log, include_compatible=True)
    context.may_have(CPU, (8, 8))
    list(context.find_by_shapes(CPU, (8, 8)))
    found = [context.find(CPU, KEY), *context.find_ansor(CPU, decode_key(ANSOR_KEY))]
    return next((record.source for record in found if record is not None), None)


@pytest.mark.parametrize("make", [own, ansors])
def test_no_value_at_any_place_aborts_a_log(tmp_path, caplog, make):
    log = tmp_path / "a.json"
    lines = list(variants(make()))
    log.write_text("\n".join([make([1e-9]), *lines]) + "\n")
    records = load_records(log)
    assert len(records) < len(lines)
    assert f"a.json: skipped {len(lines) + 1 - len(records)} line(s)" in caplog.text
    assert best_of(log) == "auto_scheduler:a.json:1"
    best = load_best_record(log, KEY if make is own else ANSOR_KEY, "llvm", include_compatible=True)
    assert best is not None and best.source == "auto_scheduler:a.json:1"


@pytest.mark.parametrize("make", [own, ansors])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1e999", "not seconds"),
        ("9" * 5000, "integer of thousands of digits"),
        ("[" * 300 + "]" * 300, "nested more than 64 levels deep"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
)
def test_a_skipped_line_is_named_with_file_line_and_reason(tmp_path, caplog, make, value, reason):
    log = tmp_path / "a.json"
    log.write_text(f"{make()}\n{make().replace('2e-05', value)}\n{make()}\n")
    with caplog.at_level(logging.WARNING):
        assert len(load_records(log)) == 2
    assert "a.json: skipped 1 line(s)" in caplog.text
    assert "line 2: " in caplog.text and reason in caplog.text
    with pytest.raises(RecordError, match=f"a.json:2: .*{reason}"):
        load_records(log, strict=True)


@pytest.mark.parametrize("make", [own, ansors])
@pytest.mark.parametrize("costs", [[0.0], [-1.0], [-1.0, 5.0], [1e308, 1e308]])
def test_times_that_no_clock_gave_never_rank_first(tmp_path, make, costs):
    log = tmp_path / "a.json"
    log.write_text(f"{make(costs)}\n{make([1.0])}\n")
    assert best_of(log) == "auto_scheduler:a.json:2"
    best = load_best_record(log)
    assert best is not None and best.cost == 1.0
    log.write_text(f"{make(costs)}\n")
    assert best_of(log) is None
    assert [record.cost for record in load_records(log)] == [math.inf]


def test_a_trace_that_only_the_build_reads_is_named_and_passed_over(tmp_path, caplog):
    log = tmp_path / "a.json"
    log.write_text(own().replace('"x"', "9" * 5000) + "\n")
    assert best_of(log) is None
    assert "a.json:1: has an integer of thousands of digits" in caplog.text


@pytest.mark.parametrize(
    "key",
    [
        "a.b.²x8",
        "a.b." + "9" * 5000,
        '["' + "a" * 32 + '", ' + "1" * 400 + "]",
        '["' + "a" * 32 + r'", "\ud800"]',
    ],
)
def test_keys_of_impossible_extents_match_nothing(tmp_path, key):
    log = tmp_path / "a.json"
    row = {**json.loads(own()), "workload": {"key": key}}
    log.write_text(json.dumps(row) + "\n" + own() + "\n")
    assert best_of(log) == "auto_scheduler:a.json:2"


def test_records_of_a_script_with_such_times_are_passed_over():
    for cost in (0.0, -1.0, math.nan, math.inf):
        context = ApplyHistoryBest([
            Record(KEY, {"kind": "llvm", "keys": ["cpu"]}, [[], []], (cost,)),
            AnsorRecord(ANSOR_KEY, "llvm -keys=cpu", [], (cost,)),
        ])  # fmt: skip
        assert context.find(CPU, KEY) is None
        assert not list(context.find_ansor(CPU, decode_key(ANSOR_KEY)))
