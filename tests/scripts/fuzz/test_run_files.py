"""The fuzzer of files: what it damages, what it finds, and a short run without findings."""

from __future__ import annotations

import json
import os
import random
import time

import onnx
import pytest

from compiler.errors import RecordError
from scripts.fuzz import mutate, readers
from scripts.fuzz import run_files as files

COUNT = 3000
"""Files of the short run."""


@pytest.mark.parametrize("kind", readers.READERS)
def test_good_files_are_read_and_damage_is_the_same_for_the_same_number(kind, tmp_path):
    reader = readers.READERS[kind]
    if not reader.available:
        pytest.skip(f"the package {reader.needs} is not installed")
    seeds = list(reader.seeds())
    if kind != "symbol import":  # whose seeds are symbols that the reader of symbols takes
        for data in seeds[:8]:
            (tmp_path / "good").write_bytes(data)
            reader.read(tmp_path / "good")
    damaged = [mutate.chosen(seeds, reader.damage, 1, number) for number in range(20)]
    assert damaged == [mutate.chosen(seeds, reader.damage, 1, number) for number in range(20)]
    assert sum(data not in seeds for data in damaged) > 10


def test_damaged_values_and_fields_leave_the_structure_whole():
    rng = random.Random(0)
    text = json.dumps({"a": [1, "x", {"b": None}], "c": 1.5}).encode()
    assert all(isinstance(json.loads(mutate.change_json(text, rng)), object) for _ in range(200))
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="first")
    value = onnx.helper.make_tensor_value_info("x", 1, [2, 3])
    graph = onnx.helper.make_graph([node], "graph", [value], [value])
    model = onnx.helper.make_model(graph).SerializeToString()
    parsed = 0
    for _ in range(100):
        try:
            parsed += onnx.load_from_string(mutate.change_fields(model, rng)) is not None
        except Exception:  # a string that is not UTF-8, a message of another kind
            continue
    assert parsed > 50


@pytest.mark.parametrize(
    ("what", "kind"),
    [(b"good", ""), (b"refused", ""), (b"raise", "exception"), (b"memory", "exception"),
     (b"crash", "crash"), (b"sleep", "hang")],
)  # fmt: skip
def test_whatever_is_not_an_error_of_batons_is_a_finding(what, kind, tmp_path, monkeypatch, capsys):
    def read(path):
        data = path.read_bytes()
        if data == b"refused":
            raise RecordError("not a record")
        if data == b"raise":
            raise KeyError("version")
        if data == b"memory":
            bytearray(files.MEMORY * 2)
        if data == b"crash":
            os.abort()
        if data == b"sleep":
            time.sleep(60)

    reader = readers.Reader(lambda: [what], read, lambda data, rng: data)
    monkeypatch.setitem(readers.READERS, "made up", reader)
    found = files.run(["made up"], tmp_path / "findings", count=2, limit=1.0)["made up"]
    assert found.files == 2
    assert [cause.partition(":")[0] for cause in found.causes] == ([kind] if kind else [])
    kept = list((tmp_path / "findings").glob("*"))
    assert [path.read_bytes() for path in kept] == ([what] if kind else [])
    assert ("made up" in capsys.readouterr().out) and found.read == (2 if what == b"good" else 0)


def test_a_short_run_has_no_findings(tmp_path, capsys):
    """As `make fuzz`, in this many files."""
    tallies = files.run(readers.READERS, tmp_path, seed=1, count=COUNT)
    assert not any(tally.causes for tally in tallies.values()), capsys.readouterr().out
    refused = {kind for kind, tally in tallies.items() if tally.read < tally.files}
    assert refused >= tallies.keys() - {"contests", "untrusted module"}
