"""Reading and writing of AutoTVM log lines, against what TVM 0.18 made of the same lines."""

from __future__ import annotations

import base64
import json
import logging
import pickle
from pathlib import Path

import pytest

from compiler.errors import RecordError
from compiler.records.autotvm.record import decode, encode, load_from_file, parse_line
from schedules.config import OtherOptionEntity, SplitEntity

DATA = Path(__file__).parent / "data"
LINES = {row["name"]: row for row in json.loads((DATA / "formats/lines.json").read_text())}
GOOD = LINES["plain_v0.2"]["line"]

# Lines that this reader takes although TVM 0.18 did not.
MORE_LENIENT = {
    "target_link_params_old_attr",
    "target_unknown_attr",
    "no_index",
    "v_0.1_extra_key_on_new_record",
    "bom_prefixed",
    "no_code_hash",
}
# Lines that TVM 0.18 took, though they hold no time that can be compared.
STRICTER = {"empty_costs", "nan_cost", "infinity_cost"}


@pytest.mark.parametrize("name", [n for n, row in LINES.items() if row["outcome"] == "accepted"])
def test_line_accepted_by_tvm_0_18_reads_the_same(name):
    expected = LINES[name]
    if name in STRICTER:
        with pytest.raises(RecordError, match="costs"):
            decode(expected["line"])
        return
    inp, result = decode(expected["line"])
    assert list(inp.target.keys) == expected["target_keys"]
    assert inp.target.model == expected["target_model"]
    assert inp.task.name == expected["task"]
    assert json.loads(json.dumps(inp.task.args)) == expected["args"]
    assert result.error_no == int(expected["error_no"])
    assert inp.config.cost == pytest.approx(float(expected["mean_cost"]), rel=1e-12)
    knobs = {
        name: list(value) if isinstance(value, list) else value
        for name, _, value in inp.config.to_entity()
    }
    assert {name: str(value) for name, value in knobs.items()} == {
        name: str(value) for name, value in expected["entities"].items()
    }


@pytest.mark.parametrize(
    "name",
    [n for n, row in LINES.items() if row["outcome"] != "accepted" and n not in MORE_LENIENT],
)
def test_line_refused_by_tvm_0_18_is_a_record_error_here(name):
    if name == "v0.1_json_old_short_keys":
        decode(LINES[name]["line"])  # read by translation, see below
        return
    with pytest.raises(RecordError):
        decode(LINES[name]["line"])


def test_target_attributes_that_tvm_dropped_do_not_lose_the_record():
    inp, _ = decode(LINES["target_link_params_old_attr"]["line"])
    assert inp.target.keys == ("cpu",)
    assert "-link-params" in str(inp.target)


def test_config_reads_into_knob_entities_with_cost_and_source():
    inp, _ = decode(GOOD)
    assert inp.config["tile_oc"] == SplitEntity((-1, 16))
    assert inp.config["unroll_kw"] == OtherOptionEntity(False)
    assert not inp.config.is_fallback
    assert inp.config.source.startswith("topi:")


def test_encode_writes_the_line_that_was_read():
    row = json.loads(GOOD)
    assert json.loads(encode(*decode(GOOD))) == {**row, "tvm_version": "0.18.0"}


def test_both_layouts_of_a_line_parse_to_the_same_record():
    compact = json.dumps(json.loads(GOOD), separators=(",", ":"))
    assert parse_line(compact) == parse_line(GOOD)


class _Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle of the log was loaded",))


def test_pickled_record_is_refused_by_name_and_never_loaded(tmp_path):
    payload = base64.b64encode(pickle.dumps(_Bomb())).decode()
    row = "\t".join(["llvm", payload, payload, payload, "0.2", "0.7.dev0"])
    with pytest.raises(RecordError, match="pickled record"):
        decode(row)
    log = tmp_path / "pickled.log"
    log.write_text(row + "\n")
    with pytest.raises(RecordError, match=r"pickled\.log.*pickled record"):
        list(load_from_file(log))
    with pytest.raises(RecordError, match="protocol"):
        decode(row, "pickle")


def test_renamed_tasks_and_shorter_argument_lists_get_their_last_form():
    a, b = ["TENSOR", [12, 64, 32], "float32"], ["TENSOR", [12, 48, 32], "float32"]
    row = json.loads(GOOD)
    row["input"][1:3] = ["batch_matmul.x86", [a, b]]
    inp, _ = decode(json.dumps(row))
    assert inp.task.args[2:] == ((12, 64, 48), "float32", 0, 1)
    row["input"] = ["cuda", "dense_large_batch.cuda", [a, b, None, "float32"], {}]
    assert decode(json.dumps(row))[0].task.name == "dense_large_batch.gpu"
    volume = [["TENSOR", [1, 8, 4, 4, 4], "float32"], ["TENSOR", [8, 8, 3, 3, 3], "float32"]]
    rest = [[1, 1, 1], [0] * 6, [1, 1, 1], "float32"]
    row["input"] = ["llvm", "conv3d_ncdhw.x86", [*volume, *rest], {}]
    assert decode(json.dumps(row))[0].task.args[-2:] == (1, "float32")


def test_bad_lines_are_skipped_with_their_numbers_in_one_warning(tmp_path, caplog):
    log = tmp_path / "odd.log"
    log.write_text("\n".join(["# comment", GOOD, "{}", "", "nonsense", GOOD, "nonsense", ""]))
    with caplog.at_level(logging.WARNING):
        records = list(load_from_file(log))
    assert [inp.config.source for inp, _ in records] == ["topi:odd.log:2", "topi:odd.log:6"]
    assert len(caplog.records) == 1
    assert "odd.log: skipped 3" in caplog.text
    assert "line 3" in caplog.text and "line 5, 7" in caplog.text


def test_strict_raises_at_the_first_bad_line_with_file_and_line(tmp_path):
    log = tmp_path / "odd.log"
    log.write_text(f"{GOOD}\nnonsense\n")
    with pytest.raises(RecordError, match=r"odd\.log:2: "):
        list(load_from_file(log, strict=True))


def test_truncated_last_line_loses_nothing_before_it(caplog):
    records = list(load_from_file(DATA / "formats/truncated_last.log"))
    assert len(records) == 2
    assert "skipped 1" in caplog.text


def test_log_of_one_cut_off_line_is_an_empty_log(tmp_path):
    log = tmp_path / "killed.log"
    log.write_text(GOOD[:200])
    assert list(load_from_file(log)) == []


@pytest.mark.parametrize("path", ["missing.log", "."])
def test_file_that_cannot_be_read_is_a_record_error(tmp_path, path):
    with pytest.raises(RecordError, match="can't be read"):
        list(load_from_file(tmp_path / path))


def test_file_without_any_record_is_a_record_error(tmp_path):
    log = tmp_path / "model.onnx"
    log.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(RecordError, match="no AutoTVM record"):
        list(load_from_file(log))
