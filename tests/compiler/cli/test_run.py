from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from compiler.cli import run
from compiler.cli.app import app


def test_a_library_and_its_model_give_the_same_as_onnxruntime(
    cli, model, library, reference, tmp_path
):
    data = np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype("float32")
    np.save(tmp_path / "data.npy", data)
    for path in (library, model):
        saved = tmp_path / "out.npz"
        arguments = ["--input", f"data={tmp_path / 'data.npy'}", "--save", str(saved), "--json"]
        result = cli.invoke(app, ["run", str(path), *arguments])
        assert result.exit_code == 0, result.stderr
        expected = reference(data)
        with np.load(saved) as arrays:
            (output,) = (arrays[name] for name in arrays.files)
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
        (summary,) = json.loads(result.stdout)["outputs"].values()
        assert summary["shape"] == [1, 10]
        assert abs(summary["max"] - expected.max()) < 1e-3


def test_random_inputs_are_the_same_for_the_same_seed(cli, library):
    def outputs(seed):
        arguments = ["run", str(library), "--random", "--seed", seed, "--json"]
        return json.loads(cli.invoke(app, arguments).stdout)["outputs"]

    assert outputs("1") == outputs("1")
    assert outputs("1") != outputs("2")


def test_every_repetition_is_timed(cli, library):
    result = cli.invoke(app, ["run", str(library), "--random", "--repeat", "3", "--json"])
    document = json.loads(result.stdout)
    assert len(document["milliseconds"]) == 3
    assert document["median_milliseconds"] == sorted(document["milliseconds"])[1]
    assert "median" in cli.invoke(app, ["run", str(library), "--random", "--repeat", "1"]).stdout


def test_inputs_that_are_missing_unknown_or_misshapen_are_errors_that_name_them(
    cli, library, tmp_path
):
    np.save(tmp_path / "small.npy", np.zeros((1, 3, 4, 4), "float32"))
    missing = cli.invoke(app, ["run", str(library)])
    misshapen = cli.invoke(app, ["run", str(library), "--input", f"data={tmp_path}/small.npy"])
    unknown = cli.invoke(
        app, ["run", str(library), "--random", "--input", f"image={tmp_path}/small.npy"]
    )
    for result, name in ((missing, "data"), (misshapen, "data"), (unknown, "image")):
        assert result.exit_code == 1
        assert name in result.stderr.splitlines()[-1]


def test_a_pickled_input_is_refused(cli, library, tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    result = cli.invoke(app, ["run", str(library), "--input", f"data={tmp_path}/evil.npy"])
    assert result.exit_code == 1
    assert "evil.npy" in result.stderr.splitlines()[-1]


def test_a_file_that_is_no_library_is_refused(cli, tmp_path):
    (tmp_path / "fake.so").write_bytes(b"\x7fELF")
    result = cli.invoke(app, ["run", str(tmp_path / "fake.so"), "--random"])
    assert result.exit_code == 1
    assert "fake.so" in result.stderr.splitlines()[-1]


_FAILING = """
import tvm
from tvm import relay
def network():
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 5))
    return relay.Function([x, w], relay.nn.dense(x, w))
network()
"""


@pytest.mark.parametrize("options", [[], ["-v"]])
def test_errors_of_scripts_show_the_scripts_lines_alone_unless_verbose(tmp_path, options):
    script = tmp_path / "failing.py"
    script.write_text(_FAILING)
    command = [sys.executable, "-m", "compiler", "run", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[-1].startswith("compiler.errors.RelayTypeError: Relay operator nn.dense")
    frames = [line for line in lines if line.startswith("  File ")]
    if options:
        assert any("dialect.py" in frame for frame in frames)
    else:
        assert [str(script) in frame for frame in frames] == [True, True]
        assert "frames inside Baton and TVM" in lines[-2]


def test_missing_and_unknown_inputs_are_reported_before_the_build(cli, model, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 8, 8), "float32"))
    for words, said in (
        ([], "no value for data: float32[1, 3, 8, 8]; give --input NAME=FILE.npy, or --random"),
        (
            ["--input", f"image={tmp_path / 'x.npy'}", "--random"],
            "--input image: the model has no such input; its inputs are data: float32[1, 3, 8, 8]",
        ),
    ):
        result = cli.invoke(app, ["run", str(model), *words])
        assert result.exit_code == 1
        assert said in result.stderr
        assert "build" not in result.stderr


def test_a_library_keeps_its_precision(cli, library):
    result = cli.invoke(app, ["run", str(library), "--random", "--precision", "bf16"])
    assert result.exit_code == 1
    assert "is built already, so --precision bf16 can't change it" in result.stderr


def test_a_run_uses_the_threads_that_are_asked_for(cli, library, monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "7")
    seen = []

    def run_model(*_, **__):
        seen.append(os.environ["TVM_NUM_THREADS"])
        return run.Ran({}, [])

    monkeypatch.setattr(run, "run_model", run_model)
    for words in ([], ["--threads", "3"]):
        cli.invoke(app, ["run", str(library), "--random", *words])
    assert seen == ["7", "3"]
