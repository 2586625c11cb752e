"""`baton info` of models and libraries."""

from __future__ import annotations

import json

import pytest

import compiler
from compiler.cli.app import app


def described(cli, path, *words):
    result = cli.invoke(app, ["info", str(path), *words, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_model(cli, model):
    found = described(cli, model)
    assert found["kind"] == "model"
    assert found["inputs"] == ["data: float32[1, 3, 8, 8]"]
    assert found["outputs"] == ["scores: float32[1, 10]"]
    assert found["symbols"] == {}
    assert found["weights_bytes"] == 4 * (4 * 27 + 2560 + 10)


def test_dynamic_dimensions_of_a_model(cli, model):
    found = described(cli, model, "--shape", "data=batch,3,8,8")
    assert found["inputs"] == ["data: float32[batch, 3, 8, 8]"]
    assert found["symbols"] == {"batch": None}


def test_a_library_that_is_not_run(cli, library):
    found = described(cli, library)
    assert found["kind"] == "library"
    assert found["inputs"] == ["data: float32[1, 3, 8, 8]"]
    assert found["target"].startswith("llvm")
    assert found["devices"] == ["cpu"]
    assert found["kernels"] >= 2
    assert found["baton_version"] == compiler.__version__
    assert found["tvm_version"].startswith("0.27")
    assert found["problem"] is None


@pytest.mark.parametrize("words", [["--shape", "data=1,3,8,8"], ["--extent", "batch=2"]])
def test_options_for_models_are_rejected_for_a_library(cli, library, words):
    result = cli.invoke(app, ["info", str(library), *words])
    assert result.exit_code == 1
    assert "is a library; --shape and --extent are for model files" in " ".join(
        result.stderr.split()
    )


def test_bounds_of_a_library(cli, model, tmp_path):
    words = ["--shape", "data=batch,3,8,8", "--bound", "batch=8", "-o", str(tmp_path / "n.so")]
    assert cli.invoke(app, ["compile", str(model), *words]).exit_code == 0
    assert described(cli, tmp_path / "n.so")["symbols"] == {"batch": 8}
    shown = cli.invoke(app, ["info", str(tmp_path / "n.so")]).stdout
    assert "batch, at most 8" in shown


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("net.onnx", b"<!DOCTYPE html>", "it is an HTML page"),
        ("net.tflite", b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
        ("net.onnx", b"PK\x03\x04" + bytes(60), "it is a zip archive"),
        ("net.so", b"\x80\x02}q\x00.", "it is a Python pickle"),
        ("net.tar", b"\n<html>", "it is an HTML page"),
    ],
)
def test_files_that_are_something_else_are_named_as_what_they_are(
    cli, tmp_path, name, content, said
):
    path = tmp_path / name
    path.write_bytes(content)
    result = cli.invoke(app, ["info", str(path)])
    assert result.exit_code == 1
    assert said in result.stderr
    assert str(path) in result.stderr
