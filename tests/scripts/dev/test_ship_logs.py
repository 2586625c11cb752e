"""From what tuning kept to the logs that are shipped."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from compiler.autotvm import load_from_file
from compiler.errors import RecordError

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "dev" / "ship_logs.py"

spec = importlib.util.spec_from_file_location("ship_logs", SCRIPT)
ship_logs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ship_logs)

TARGET = "llvm -keys=cpu -mcpu=znver3"


def record(rows, tile, cost, target=TARGET, error=0):
    shapes = [["TENSOR", [rows, 32], "float32"], ["TENSOR", [48, 32], "float32"]]
    line = {
        "input": [target, "dense_nopack.x86", [*shapes, None, "float32"], {}],
        "config": {"index": 1, "code_hash": None, "entity": [["tile_y", "sp", [-1, 1, tile]]]},
        "result": [[cost, cost * 1.1], error, 1.5, 86400.0 * 365],
        "version": 0.2,
    }
    return json.dumps(line) + "\n"


def shipped(folder, *logs, **options):
    options = {"command": "tune it", "machine": "A CPU", **options}
    written = ship_logs.ship(logs, folder, **options)
    return {
        path.name: [
            (inp.task.args[0][1][0], inp.config["tile_y"].size[-1], result.costs)
            for inp, result in load_from_file(path, strict=True)
        ]
        for path in written
    }


def test_the_fastest_record_of_each_workload_goes_to_the_file_of_its_cpu(tmp_path):
    one, two = tmp_path / "one.log.best", tmp_path / "two.log.best"
    one.write_text(record(4, 2, 3e-6) + record(8, 2, 5e-6) + record(4, 4, 1e-6, error=4))
    two.write_text(record(4, 8, 2e-6) + record(4, 1, 9e-6, "llvm -mcpu=znver4"))
    folder = tmp_path / "shipped"
    folder.mkdir()
    assert shipped(folder, one, two) == {
        "znver3.log": [(4, 8, (2.1e-6,)), (8, 2, (5.25e-6,))],
        "znver4.log": [(4, 1, (9.45e-6,))],
    }


def test_a_new_record_takes_the_place_of_an_old_one_and_all_origins_are_named(tmp_path):
    first, second = tmp_path / "a.log.best", tmp_path / "b.log.best"
    first.write_text(record(4, 2, 1e-6) + record(8, 2, 5e-6))
    second.write_text(record(4, 8, 2e-6))
    (tmp_path / "b.log").write_text(record(4, 8, 2e-6) * 3)
    times = {"milliseconds": [2.0], "milliseconds_without": [3.0]}
    (tmp_path / "b.result.json").write_text(json.dumps(times))
    shipped(tmp_path, first)
    assert shipped(tmp_path, second) == {"znver3.log": [(4, 8, (2.1e-6,)), (8, 2, (5.25e-6,))]}
    head = ship_logs.head_of(tmp_path / "znver3.log")
    assert head[0].startswith("znver3: A CPU; Baton ")
    assert head[1:] == [
        "tuned by: tune it",
        "a.log.best: 2 records, 1971-01-01",
        "b.log.best: 1 records, 1971-01-01, of 3 trials; the network took 3.000 ms without them, "
        "2.000 ms with them",
    ]


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=znver3 -mattr=-avx2"])
def test_a_record_that_names_no_cpu_is_refused(tmp_path, target):
    log = tmp_path / "a.log.best"
    log.write_text(record(4, 2, 1e-6, target))
    with pytest.raises(RecordError, match=r"topi:a\.log\.best:1: the target .* names no CPU"):
        shipped(tmp_path, log)


def test_another_machine_must_be_named(tmp_path):
    log = tmp_path / "a.log.best"
    log.write_text(record(4, 2, 1e-6, "llvm -mcpu=penryn"))
    with pytest.raises(RecordError, match="give --machine"):
        shipped(tmp_path, log, machine=None)


def test_what_is_not_clearly_faster_now_is_left_out(tmp_path, monkeypatch):
    from compiler.records.ab_benchmark import Outcome
    from compiler.records.autotvm import log_benchmark

    seconds = {4: 0.9, 8: 0.99}  # with the record; 1 without it

    def verdict(target, workload, config):
        return Outcome(seconds[workload[1][1][0]], 1.0)

    monkeypatch.setattr(log_benchmark, "measured", verdict)
    log = tmp_path / "a.log.best"
    log.write_text(record(4, 2, 1e-6) + record(8, 2, 5e-6))
    assert shipped(tmp_path, log, measure=True) == {"znver3.log": [(4, 2, (1.05e-6,))]}
