"""Dynamic shapes on the command line."""

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
    with pytest.raises(typer.BadParameter, match="not a number of elements"):
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
    np.save(tmp_path / "x.npy", np.zeros((2, 4), "float32"))
    other = cli.invoke(app, ["run", str(library), "--input", f"x={tmp_path / 'x.npy'}"])
    assert other.exit_code == 1 and "extent 4 along axis 1, expected 3" in other.stderr


def test_a_cache_is_kept_with_its_room(cli, tmp_path):
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (extent, 3))
        for name, extent in (("new", "n"), ("past_key", "past"), ("key", "all"), ("y", "all"))
    }
    graph = helper.make_graph(
        [
            helper.make_node("Concat", ["past_key", "new"], ["key"], axis=0),
            helper.make_node("Neg", ["key"], ["y"]),
        ],
        "test",
        [infos["new"], infos["past_key"]],
        [infos["y"], infos["key"]],
    )
    model, library = tmp_path / "cache.onnx", tmp_path / "cache.so"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(proto, model)
    options = ["--kv-cache", "past=8", "-o", str(library), "--json"]
    compiled = json.loads(cli.invoke(app, ["compile", str(model), *options]).stdout)
    assert "past_key: float32[8, 3]" in compiled["inputs"]
    extents = ["--extent", "past=5", "--extent", "n=2"]
    ran = cli.invoke(app, ["run", str(library), "--random", *extents, "--json"])
    assert json.loads(ran.stdout)["outputs"]["y"]["shape"] == [7, 3]
    full = cli.invoke(app, ["run", str(library), "--random", "--extent", "past=7", *extents[2:]])
    assert full.exit_code == 1 and "7 are there, and 2 more came" in full.stderr


def test_sizes_are_named(cli, tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3))
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "test", [x], [y])
    model, library = tmp_path / "exp.onnx", tmp_path / "exp.so"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(proto, model)
    options = ["--specialize", "n=1,4", "-o", str(library), "--json"]
    compiled = json.loads(cli.invoke(app, ["compile", str(model), *options]).stdout)
    names = [kernel["name"] for kernel in compiled["report"]["kernels"]]
    assert len([name for name in names if "exp" in name]) == 3
    for n in (1, 2, 4):
        ran = cli.invoke(app, ["run", str(library), "--random", "--extent", f"n={n}", "--json"])
        assert json.loads(ran.stdout)["outputs"]["y"]["shape"] == [n, 3]
    wrong = cli.invoke(app, ["compile", str(model), "--specialize", "n=1,x"])
    assert wrong.exit_code == 2 and "'1,x' is not a list of sizes" in wrong.stderr


@pytest.fixture
def dynamic_model(tmp_path):
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ("n", "m", 8)), ("z", (None, 8)), ("y", ("n", "m", 4)))
    ]
    weight = onnx.numpy_helper.from_array(np.ones((8, 4), "float32"), "w")
    nodes = [
        helper.make_node("Add", ["x", "z"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "test", infos[:2], infos[2:], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(proto, tmp_path / "dynamic.onnx")
    return str(tmp_path / "dynamic.onnx")


SHAPES = ["--shape", "x=2,3,8", "--shape", "z=1,8"]
EXTENTS = ["--extent", "n=2", "--extent", "m=3", "--extent", "z_0=1"]
QUICK = {
    "bench": ["--peers", "", "--rounds", "1", "--seconds", "0.01"],
    "profile": ["--repeat", "1"],
    "replay": ["--rounds", "1"],
    "run": ["--random"],
    "extract-tasks": [],
}


def test_every_command_with_shapes_takes_extents():
    commands = typer.main.get_command(app).commands
    options = {
        name: {option for each in command.params for option in each.opts}
        for name, command in commands.items()
    }
    taking = {name for name, known in options.items() if "--shape" in known}
    assert taking >= {"compile", "partition", "tune", "quantize", *QUICK}
    assert all("--extent" in options[name] for name in taking)


@pytest.mark.parametrize("command", QUICK)
def test_dynamic_models_get_numbers_by_shape_or_by_extent(cli, dynamic_model, command):
    found = []
    for sizes in (SHAPES, EXTENTS):
        made = cli.invoke(app, [command, dynamic_model, *QUICK[command], *sizes, "--json"])
        assert made.exit_code == 0, made.stderr
        found.append(json.loads(made.stdout))
    if command == "extract-tasks":
        assert [task["description"] for task in found[1]["tasks"]] == [
            task["description"] for task in found[0]["tasks"]
        ]
        return
    if command == "profile":
        one, other = ({k["name"]: k["shapes"] for k in each["kernels"]} for each in found)
        assert one == other
        assert any("2x3x8" in shapes for shapes in one.values())
    without = cli.invoke(app, [command, dynamic_model, *QUICK[command]])
    assert without.exit_code == 1
    assert "--extent" in without.stderr


def test_an_extent_is_a_number_in_the_library(cli, dynamic_model, tmp_path):
    options = ["--extent", "m=3", "-o", str(tmp_path / "m.so"), "--json"]
    compiled = cli.invoke(app, ["compile", dynamic_model, *options])
    inputs = json.loads(compiled.stdout)["inputs"]
    assert inputs == ["x: float32[n, 3, 8]", "z: float32[z_0, 8]"]
    wrong = cli.invoke(app, ["compile", dynamic_model, "--extent", "rows=3"])
    assert wrong.exit_code == 1
    assert "has no dynamic dimension 'rows'; its dynamic dimensions are: m, n, z_0" in " ".join(
        wrong.stderr.split()
    )
