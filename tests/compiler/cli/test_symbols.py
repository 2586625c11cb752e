"""Extents that only running tells, on the command line."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper

from compiler.cli import arguments
from compiler.cli.app import app


def test_shapes_have_numbers_names_and_question_marks():
    texts = ["data=1,3,224,224", "ids=batch,?", "old=2x3", "scalar="]
    assert arguments.shapes(texts) == {
        "data": (1, 3, 224, 224),
        "ids": ("batch", None),
        "old": (2, 3),
        "scalar": (),
    }
    assert arguments.extents(["seq=512"], "--bound") == {"seq": 512}
    for wrong in (["ids=1,,2"], ["ids=-1"], ["ids=1.5"]):
        with pytest.raises(typer.BadParameter):
            arguments.shapes(wrong)
    with pytest.raises(typer.BadParameter, match="not an extent"):
        arguments.extents(["seq=many"], "--extent")


def test_a_library_with_symbols_is_compiled_and_run(cli, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3))],
    )
    model, library = tmp_path / "relu.onnx", tmp_path / "relu.so"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(proto, model)
    options = ["--shape", "x=rows,3", "--bound", "rows=4", "-o", str(library), "--json"]
    compiled = cli.invoke(app, ["compile", str(model), *options])
    assert json.loads(compiled.stdout)["inputs"] == ["x: float32[rows, 3]"]
    ran = cli.invoke(app, ["run", str(library), "--random", "--extent", "rows=2", "--json"])
    assert json.loads(ran.stdout)["outputs"]["y"]["shape"] == [2, 3]
    without = cli.invoke(app, ["run", str(library), "--random"])
    assert without.exit_code == 1 and "--extent rows=1" in without.stderr
    np.save(tmp_path / "x.npy", np.zeros((5, 3), "float32"))
    beyond = cli.invoke(app, ["run", str(library), "--input", f"x={tmp_path / 'x.npy'}"])
    assert beyond.exit_code == 1 and "'rows' is at most 4" in beyond.stderr
