from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm

from compiler.cli.app import app
from compiler.partition import subgraphs, unregister


def partition(cli, model, plugin, *arguments):
    common = ["partition", str(model), "--backend", "mine", "--plugin", str(plugin)]
    return cli.invoke(app, [*common, *arguments])


def test_json_lists_what_the_backend_took(cli, model, plugin):
    result = partition(cli, model, plugin, "--option", "ops=nn.dense+nn.bias_add", "--json")
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["subgraphs"]
    assert found["backend"] == "mine"
    assert found["strategy"] == "by_name"
    assert found["operators"] == ["nn.dense", "nn.bias_add"]
    assert "dense_bias" in found["input_names"]


def test_the_table_shows_operators_and_inputs(cli, model, plugin):
    result = partition(cli, model, plugin, "--option", "ops=nn.conv2d")
    assert result.exit_code == 0, result.stderr
    assert "nn.conv2d" in result.stdout
    assert "conv_weight" in result.stdout


def test_a_backend_that_takes_nothing_is_no_error(cli, model, plugin):
    result = partition(cli, model, plugin, "--option", "ops=nn.softmax")
    assert result.exit_code == 0, result.stderr
    assert "No subgraph was accepted" in result.stdout


def test_the_module_is_written_as_text_and_as_json(cli, model, plugin, tmp_path):
    for name in ("mod.py", "mod.json"):
        path = tmp_path / name
        result = partition(cli, model, plugin, "--option", "ops=nn.relu", "-o", str(path))
        assert result.exit_code == 0, result.stderr
        unregister("mine")
    assert "subgraph_mine_by_name_0" in (tmp_path / "mod.py").read_text()
    saved = tvm.ir.load_json((tmp_path / "mod.json").read_text())
    assert [info.operators for info in subgraphs(saved)] == [("nn.relu",)]


def test_an_output_that_cannot_be_written_leaves_nothing_behind(cli, model, plugin, tmp_path):
    path = tmp_path / "absent" / "mod.py"
    result = partition(cli, model, plugin, "--option", "ops=nn.relu", "-o", str(path))
    assert result.exit_code == 1
    assert str(path) in result.stderr.splitlines()[-1]
    assert not path.parent.exists()


def test_an_unknown_backend_is_an_error_that_lists_the_known_ones(cli, model, plugin):
    arguments = ["partition", str(model), "--backend", "yours", "--plugin", str(plugin)]
    result = cli.invoke(app, arguments)
    assert result.exit_code == 1
    assert "'yours'" in result.stderr
    assert "mine" in result.stderr


def test_an_option_may_not_take_the_name_of_an_argument(cli, model, plugin):
    result = partition(cli, model, plugin, "--option", "params=x")
    assert result.exit_code == 1
    assert "'params'" in result.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [("x = 1\nraise ValueError('no')", "line 2 raised ValueError: no"), ("x = (", "line 1")],
)
def test_a_plugin_that_fails_is_named_with_its_line(cli, model, tmp_path, source, expected):
    plugin = tmp_path / "broken.py"
    plugin.write_text(source)
    result = partition(cli, model, plugin)
    assert result.exit_code == 1
    assert "broken.py" in result.stderr
    assert expected in result.stderr


def test_a_plugin_that_is_not_there_is_named(cli, model, tmp_path):
    for name in ("absent.py", "absent.txt"):
        result = partition(cli, model, tmp_path / name)
        assert result.exit_code == 1
        assert name in result.stderr


def test_dot_text_shows_subgraphs_and_reasons_of_rejections(cli, model, plugin, tmp_path):
    drawn = tmp_path / "out.dot"
    result = partition(
        cli,
        model,
        plugin,
        *("--option", "ops=matmul+add+nn.relu", "--option", "min_ops=2"),
        *("--dot", str(drawn)),
    )
    assert result.exit_code == 0, result.stderr
    assert "rejected because" in result.stdout
    text = drawn.read_text()
    assert text.startswith("digraph")
    assert "min_ops=2: it has 1" in text


def test_the_include_dir_has_the_header(cli):
    result = cli.invoke(app, ["include-dir"])
    assert result.exit_code == 0
    assert (Path(result.stdout.strip()) / "baton" / "partitioner.h").is_file()


def test_explain_shows_who_runs_what_and_what_would_help(cli, model):
    arguments = ["partition", str(model), "--backend", "onnxruntime", "--option", "ops=nn.conv2d"]
    result = cli.invoke(app, [*arguments, "--explain", "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["explanation"]
    assert [each["backend"] for each in found["shares"]] == ["onnxruntime", "baton"]
    assert found["left"][0]["operator"] == "nn.relu"
    assert found["left"][0]["reasons"][0]["reason"] == "the options do not name nn.relu"
    assert found["boundaries"][0]["bytes"] == 4 * 4 * 8 * 8
    shown = cli.invoke(app, [*arguments, "--what-if", "nn.relu"])
    assert shown.exit_code == 0, shown.stderr
    assert "the options do not name nn.relu" in shown.stdout
    assert "if onnxruntime supported nn.relu: 1 -> 1 regions" in shown.stdout
    wrong = cli.invoke(app, [*arguments, "--what-if", "nn.rleu"])
    assert wrong.exit_code == 1
    assert "did you mean nn.relu" in wrong.stderr
