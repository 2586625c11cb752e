from __future__ import annotations

import json

import pytest

from compiler.cli.app import app

TARGET = "llvm -keys=cpu -mcpu=znver4"


def record(task, args, entity, cost=1e-6, error=0):
    row = {
        "input": [TARGET, task, args, {}],
        "config": {"index": 0, "code_hash": None, "entity": entity},
        "result": [[cost], error, 1.0, 1.0],
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


def test_every_record_is_built_and_checked(cli, log):
    path = log(
        record("dense_nopack.x86", DENSE, NOPACK),
        record("dense_nopack.x86", DENSE, NOPACK, cost=1e9, error=6),
    )
    result = cli.invoke(app, ["replay", "--all-records", path, "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    (outcome,) = document["outcomes"]
    assert outcome["built"] and outcome["right"] and outcome["error"] < 1e-5
    assert document["failed_records"] == 1


def test_a_record_of_tvm_0_6_is_built_without_the_knob_that_came_later(cli, log):
    workload = ["depthwise_conv2d_nchw", [1, 16, 9, 9, "float32"], [16, 1, 3, 3, "float32"],
                [1, 1], [1, 1], [1, 1], "float32"]  # fmt: skip
    knobs = [["tile_ic", "sp", [2, 8]], ["tile_oc", "sp", [2, 8]], ["tile_ow", "sp", [3, 3]]]
    config = {"i": 0, "t": "", "c": None, "e": knobs}
    task = ["llvm", "topi_x86_depthwise_conv2d_NCHWc_from_nchw", [], {}, workload, config]
    path = log(json.dumps({"i": task, "r": [[1e-6], 0, 1.0, 1.0], "v": 0.1}))
    result = cli.invoke(app, ["replay", "--all-records", path, "--json"])
    (outcome,) = json.loads(result.stdout)["outcomes"]
    assert outcome["right"], outcome["reason"]


def test_a_record_without_a_template_is_a_failure_with_its_reason(cli, log):
    path = log(record("bitserial_dense.x86", DENSE, []))
    result = cli.invoke(app, ["replay", "--all-records", path])
    assert result.exit_code == 1
    assert "no template bitserial_dense.x86" in result.stdout


def test_a_model_and_all_records_exclude_each_other(cli, model, log):
    path = log(record("dense_nopack.x86", DENSE, NOPACK))
    assert cli.invoke(app, ["replay"]).exit_code == 2
    assert cli.invoke(app, ["replay", str(model), "--all-records", path]).exit_code == 2
