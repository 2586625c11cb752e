"""`baton tune` and `baton convert-log`."""

from __future__ import annotations

import json

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from compiler.auto_scheduler import load_records
from compiler.autotvm import load_from_file
from compiler.cli.app import app
from compiler.cli.tune import constant_bytes

TUNE = [
    "--trials",
    "3",
    "--limit",
    "1",
    "--algorithm",
    "random",
    "--timeout",
    "60",
    "--rounds",
    "2",
]


def test_a_model_is_tuned_and_a_second_run_measures_nothing_again(cli, model, tmp_path):
    log = tmp_path / "tuned.log"
    words = ["tune", str(model), "--log", str(log), "--json", *TUNE]
    first = cli.invoke(app, words)
    assert first.exit_code == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["operators"][0]["fallback_seconds"] > 0
    assert len(found["milliseconds"]) == len(found["milliseconds_without"]) == 2
    measured = log.read_text()
    assert measured.count("\n") > 0 and measured.count("\n") % 2 == 0
    kept = list(load_from_file(f"{log}.best")) if found["records"] else []
    assert len(kept) == len(found["records"])
    for _, result in kept:
        assert result.costs[0] < found["operators"][0]["fallback_seconds"]

    second = cli.invoke(app, words)
    assert second.exit_code == 0, second.stderr
    assert log.read_text() == measured


def test_a_model_is_searched_and_a_second_run_measures_nothing_again(cli, model, tmp_path):
    log = tmp_path / "tuned.json"
    words = ["tune", str(model), "--tuner", "auto_scheduler", "--log", str(log), "--json"]
    words += ["--trials", "2", "--limit", "1", "--timeout", "60", "--rounds", "2"]
    first = cli.invoke(app, words)
    assert first.exit_code == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["tasks"][0]["untuned_seconds"] > 0
    assert len(found["milliseconds"]) == len(found["milliseconds_without"]) == 2
    measured = log.read_text()
    assert measured.count("\n") == 3  # without tuning, by MetaSchedule's rules, by a template
    assert '"untuned":true' in measured and '"template":' in measured
    best = load_records(f"{log}.best", strict=True)
    assert [record.untuned for record in best] == [found["records"] == 0]

    second = cli.invoke(app, words)
    assert second.exit_code == 0, second.stderr
    assert log.read_text() == measured


def test_a_wrong_tracker_or_algorithm_is_a_clear_error(cli, model, tmp_path):
    log = str(tmp_path / "tuned.log")
    wrong = cli.invoke(app, ["tune", str(model), "--log", log, "--tracker", "nowhere"])
    assert wrong.exit_code == 2
    wrong = cli.invoke(app, ["tune", str(model), "--log", log, "--algorithm", "luck"])
    assert wrong.exit_code == 1 and "luck" in wrong.stderr


def test_the_constants_of_a_model_are_its_parameters_and_what_is_bound_into_it():
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType((4, 4), "float32")) for n in "xw")
    with builder.function("main", [x, w]):
        bound = relax.const(np.ones((2, 4), "float32"))
        out = builder.emit(op.concat([op.matmul(x, w), bound], axis=0))
        builder.emit_func_output(out)
    params = {"w": tvm.runtime.tensor(np.ones((4, 4), "float32"))}
    assert constant_bytes(builder.get(), params) == 4 * (4 * 4 + 2 * 4)


OLD = (
    '{"i": ["llvm -mcpu=skylake-avx512", "topi_x86_conv2d", [["TENSOR", [1, 3, 8, 8], "float32"], '
    '["TENSOR", [16, 3, 3, 3], "float32"], [1, 1], [1, 1], [1, 1], "NCHW", "float32"], {}, '
    '["conv2d", [1, 3, 8, 8, "float32"], [16, 3, 3, 3, "float32"], [1, 1], [1, 1], [1, 1], "NCHW", '
    '"float32"], {"i": 193, "c": null, "e": [["tile_ic", "sp", [1, 3]], '
    '["tile_oc", "sp", [1, 16]], ["tile_ow", "sp", [2, 4]], ["unroll_kw", "ot", false]], '
    '"t": "direct"}], '
    '"r": [[9.5e-05], 0, 1.7, 1539972731.3], "v": 0.1}'
)
FAILED = OLD.replace("[9.5e-05], 0", "[1000000000.0], 4")


def test_old_logs_become_one_in_the_current_form(cli, tmp_path):
    log, out = tmp_path / "old.log", tmp_path / "new.log"
    log.write_text(f"# comment\n\n{OLD}\n{FAILED}\nnonsense\n{OLD[:60]}")
    words = ["convert-log", str(log), "-o", str(out), "--json"]
    done = json.loads(cli.invoke(app, words).stdout)
    assert done["written"] == [["old.log", "version 0.1", 2]]
    assert sum(count for _, _, count, _ in done["dropped"]) == 2
    assert {line for *_, line in done["dropped"]} <= {5, 6}
    (inp, result), _ = load_from_file(out)
    assert inp.task.name == "conv2d_NCHWc.x86" and result.costs == (9.5e-05,)

    done = json.loads(cli.invoke(app, [*words, "--drop-failed", "--best"]).stdout)
    assert done["written"] == [["old.log", "version 0.1", 1]]
    assert ["old.log", "failed measurement", 1, 4] in done["dropped"]
