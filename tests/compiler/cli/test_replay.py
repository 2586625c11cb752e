from __future__ import annotations

import json

import pytest

from compiler.cli.app import app

TARGET = "llvm -keys=cpu -mcpu=znver4"


def record(task, args, entity):
    row = {
        "input": [TARGET, task, args, {}],
        "config": {"index": 0, "code_hash": None, "entity": entity},
        "result": [[1e-6], 0, 1.0, 1.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    return json.dumps(row)


DENSE = [["TENSOR", [1, 256], "float32"], ["TENSOR", [10, 256], "float32"], None, "float32"]
NOPACK = [["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 5]], ["tile_k", "sp", [-1, 16]]]


@pytest.fixture
def log(tmp_path):
    def write(*lines):
        path = tmp_path / "tuned.log"
        path.write_text("".join(line + "\n" for line in lines))
        return str(path)

    return write


def test_a_model_is_timed_with_and_without_its_log(cli, model, log):
    path = log(record("dense_nopack.x86", DENSE, NOPACK))
    result = cli.invoke(app, ["replay", str(model), "--log", path, "--rounds", "2", "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    (used,) = document["recorded"]
    assert (used["implementation"], used["source"]) == ("dense_nopack.x86", "topi:tuned.log:1")
    assert any(k["implementation"].startswith("conv2d") for k in document["unrecorded"])
    assert len(document["milliseconds"]) == len(document["milliseconds_without"]) == 2
    assert document["difference"] < 1e-4
    shown = cli.invoke(app, ["replay", str(model), "--log", path, "--rounds", "1"]).stdout
    assert "1 kernels from records" in shown
    assert "tuned.log:1" in shown
