"""Ansor's record lines: every version, odd ones, damaged ones, and their way into a context."""

from __future__ import annotations

import json
import math
import random

import pytest

from compiler.auto_scheduler import ApplyHistoryBest
from compiler.errors import RecordError
from compiler.records.ansor.record import AnsorRecord, WorkloadKey, decode_key, distance
from compiler.records.auto_scheduler.record import load_records, parse_line, save_records
from compiler.records.log_target import log_target
from tests.compiler.records.ansor.conftest import ORACLE

LINES = (ORACLE / "best_records.json").read_text().splitlines()
KEY = '["12b88bedece6984af589a28b43e0f3c4", [1, 8], [8, 8], [1, 8]]'
CPU = log_target("llvm -mcpu=znver4")


def line(task=None, steps=(), result=None, **more):
    task = task or [KEY, "llvm -keys=cpu", [1, 64, 64, 0, 0, 0, 0, 0], "", 2, []]
    row = {"i": [task, [[], list(steps)]], "r": result or [[1e-3, 3e-3], 0, 0.5, 1600000000]}
    return json.dumps({**row, "v": "v0.6", **more})


@pytest.mark.parametrize("items", [2, 3, 4, 5, 6])
def test_every_version_is_read(items):
    task = [KEY, "llvm -keys=cpu", [8, 64, 64, 0, 0, 0, 0, 0], "llvm", 2, ["w"]][:items]
    record = parse_line(line(task))
    assert isinstance(record, AnsorRecord)
    assert record.hardware == ((8, 64, 64, 0, 0, 0, 0, 0) if items > 2 else ())
    assert record.layout_option == (2 if items > 4 else 0)
    assert record.input_names == (("w",) if items > 5 else ())
    assert record.cost == pytest.approx(2e-3)


@pytest.mark.parametrize("text", LINES[::5])
def test_a_record_is_written_as_it_was_read(text):
    written = json.loads(parse_line(text).to_line())
    assert written == json.loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line([KEY]), "has 1 items"),
        (line([KEY, "llvm", [1] * 8, "", 0, [], 0]), "has 7 items"),
        (line([KEY, "llvm", [1, 2, 3]]), "3 hardware parameters"),
        (line([KEY, "llvm", [1] * 8, "", 9, []]), "layout rewrite option 9"),
        (line([KEY, "toaster"]), "not a kind of target"),
        (line([7, "llvm"]), "not text"),
        (line(result=[[], 0, 0, 0]), "costs are not seconds"),
        (line(result=[[math.nan], 0, 0, 0]), "costs are not seconds"),
        (line(steps=[["XX", 1]]), "step 0 ['XX', 1]: unknown kind"),
        (line(steps=[["CR", 1], ["SP", 0, 0, 8, [4]]]), "step 1"),
        (line(steps=[["SP", 0, 0, 8, [0], 1]]), "0 is not a length"),
        (line(steps=[["SP", True, 0, 8, [4], 1]]), "is not a whole number"),
        (line(steps=[["CI", -1]]), "out of range"),
        (line(steps=[["CI", 10**30]]), "out of range"),
        (line(steps=[["PR", 1, 0, "unroll_all"]]), "is not known"),
        (line(x=1), "unknown field 'x'"),
        (line()[:-20], "truncated"),
        ('{"i": ' + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_damaged_line_says_what_is_wrong(text, reason):
    with pytest.raises(RecordError) as caught:
        parse_line(text)
    assert reason in str(caught.value)


def test_random_damage_raises_nothing_but_record_errors():
    rng = random.Random(0)
    for _ in range(300):
        text = list(rng.choice(LINES))
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.choice('[]{}",:0-9eEnu\\ \x00')
        try:
            parse_line("".join(text))
        except RecordError as error:
            assert str(error)


def test_a_cut_off_last_line_is_passed_over_and_told(tmp_path, caplog):
    log = tmp_path / "cut.json"
    log.write_text(f"# tuned\n\n{line()}\r\n{line()[:80]}")
    assert len(load_records(log)) == 1
    assert "line 4" in caplog.text
    with pytest.raises(RecordError, match=r"cut\.json:4"):
        load_records(log, strict=True)


def test_saved_records_are_read_again(tmp_path):
    log = tmp_path / "new" / "log.json"
    save_records(log, [parse_line(text) for text in LINES[:3]])
    assert [record.workload_key for record in load_records(log)] == [
        parse_line(text).workload_key for text in LINES[:3]
    ]


def test_keys_of_both_forms_are_the_same_key():
    flat = decode_key('["12b88bedece6984af589a28b43e0f3c4", 1, 8, 8, 8, 1, 8]')
    assert flat == decode_key(KEY)
    assert flat.is_hash
    assert not decode_key('["conv2d_layer", 1, 7, [1, 1]]').is_hash
    assert decode_key("not JSON") == WorkloadKey("not JSON", ())


def test_only_smaller_extents_serve_larger_ones():
    def key(*args):
        return WorkloadKey("f", args)

    assert distance(key(8, 224, 224), key(1, 112, 112)) == 32
    assert distance(key(1, 7, 7), key(1, 7, 7)) == 1
    assert distance(key(1, 7), key(2, 7)) == math.inf
    assert distance(key(1, "float32"), key(1, "float16")) == math.inf


def test_the_context_gives_the_cheapest_records_first(tmp_path):
    log = tmp_path / "costs.json"
    costs = [[4e-3], [1e-3, 5e-3], [2e-3], [1e-4]]
    lines = [line(result=[cost, 0, 0.5, 0]) for cost in costs]
    lines.append(line(result=[[1e10], 6, 0.5, 0]))
    log.write_text("\n".join(lines) + "\n")
    found = list(ApplyHistoryBest(log).find_ansor(CPU, decode_key(KEY)))
    assert [record.cost for record in found] == pytest.approx([1e-4, 2e-3, 3e-3])
    assert found[0].source == "auto_scheduler:costs.json:4"
    first_two = ApplyHistoryBest(log, n_lines=2).find_ansor(CPU, decode_key(KEY))
    assert next(first_two).cost == pytest.approx(3e-3)


def test_records_of_another_kind_of_target_are_not_found(tmp_path):
    log = tmp_path / "cuda.json"
    log.write_text(line([KEY, "cuda -keys=cuda,gpu -arch=sm_86"]) + "\n")
    context = ApplyHistoryBest(log)
    assert not list(context.find_ansor(CPU, decode_key(KEY)))
    assert list(context.find_ansor(log_target("cuda -arch=sm_90"), decode_key(KEY)))


def test_compatible_records_are_found_on_request(tmp_path):
    log = tmp_path / "small.json"
    log.write_text(line() + "\n")
    larger = decode_key(KEY.replace("[1, 8]", "[4, 8]"))
    assert not list(ApplyHistoryBest(log).find_ansor(CPU, larger))
    assert list(ApplyHistoryBest(log, include_compatible=True).find_ansor(CPU, larger))


def test_a_damaged_record_gives_way_to_the_next(tmp_path, caplog):
    log = tmp_path / "damaged.json"
    broken = line(result=[[1e-6], 0, 0.5, 0]).replace("[[], []]", "[[], [[1, 2]]]")
    log.write_text(f"{broken}\n{line()}\n")
    (found,) = ApplyHistoryBest(log).find_ansor(CPU, decode_key(KEY))
    assert found.source == "auto_scheduler:damaged.json:2"
    assert "damaged.json:1" in caplog.text
