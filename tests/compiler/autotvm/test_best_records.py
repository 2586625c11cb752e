"""Thinning out logs."""

from __future__ import annotations

import io
import json

import pytest

from compiler import autotvm
from compiler.autotvm import best_records

ENTITY = [["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 5]], ["tile_k", "sp", [-1, 16]]]


def line(n=10, cost=1e-6, error=0, target="llvm -mcpu=znver4", tile=5):
    args = [["TENSOR", [1, 256], "float32"], ["TENSOR", [n, 256], "float32"], None, "float32"]
    entity = [ENTITY[0], ["tile_x", "sp", [-1, tile]], ENTITY[2]]
    return json.dumps(
        {
            "input": [target, "dense_nopack.x86", args, {}],
            "config": {"index": 0, "code_hash": None, "entity": entity},
            "result": [[cost], error, 1.0, 1.0],
            "version": 0.2,
            "tvm_version": "0.18.0",
        }
    )


def write(path, *lines):
    path.write_text("".join(each + "\n" for each in lines))
    return path


def costs(path):
    return [result.costs[0] for _, result in autotvm.load_from_file(path)]


def test_the_best_of_each_workload_is_picked_in_the_order_of_the_file(tmp_path):
    log = write(
        tmp_path / "a.log", line(cost=3), line(20, 5), line(cost=1), line(cost=0.5, error=4)
    )
    autotvm.record.pick_best(log, tmp_path / "best.log")
    assert costs(tmp_path / "best.log") == [5, 1]


def test_the_best_of_each_model_is_kept_beside_the_best_of_all(tmp_path):
    model = "llvm -model=old -mcpu=znver4"
    log = write(tmp_path / "a.log", line(cost=1), line(cost=2, target=model))
    autotvm.record.pick_best(log, tmp_path / "best.log")
    assert costs(tmp_path / "best.log") == [1, 2]


def test_a_file_that_has_records_already_competes(tmp_path):
    best = write(tmp_path / "best.log", line(cost=1), line(20, 9))
    autotvm.record.pick_best(write(tmp_path / "a.log", line(cost=2), line(20, 5)), best)
    assert sorted(costs(best)) == [1, 5]


def test_the_best_go_to_an_open_file(tmp_path):
    out = io.StringIO()
    autotvm.record.pick_best(write(tmp_path / "a.log", line(cost=2), line(cost=1)), out)
    assert [r.costs[0] for _, r in autotvm.load_from_buffer(io.StringIO(out.getvalue()))] == [1]


@pytest.mark.parametrize(("clean", "counts"), [(True, [2, 1]), (False, [4, 1])])
def test_a_log_is_split_by_workload(tmp_path, clean, counts):
    log = write(
        tmp_path / "a.log", line(), line(20), line(), line(tile=2), line(error=4, tile=1)
    )  # fmt: skip
    files = autotvm.record.split_workload(log, clean)
    assert [len(costs(file)) for file in files] == counts


def test_the_module_is_a_command(tmp_path, capsys):
    log = write(tmp_path / "a.log", line(cost=2), line(cost=1))
    best_records.main(["--mode", "pick", "--i", str(log)])
    assert costs(tmp_path / "a.log.best") == [1]
    best_records.main(["--mode", "read", "--i", str(log)])
    assert capsys.readouterr().out.count("dense_nopack.x86") == 2
    best_records.main(["--mode", "split", "--i", str(log)])
    assert "a.log.001.wkl" in capsys.readouterr().out
