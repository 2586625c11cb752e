from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import compiler
from compiler.cli import bench, demo, demo_backend
from compiler.cli.app import app
from compiler.cli.bench import BenchOptions
from compiler.cli.compile import BuildOptions
from compiler.cli.console import Steps
from compiler.cli.models import find_model
from compiler.lowering.report import Report
from compiler.models import fill_weights
from compiler.partition import partition, subgraphs
from compiler.relay.frontend import from_onnx


def test_the_main_job_goes_all_the_way(cli, model):
    arguments = ["demo", str(model), "--peers", "", "--rounds", "1", "--seconds", "0.01", "--json"]
    result = cli.invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["right"] is True
    assert 0 <= document["largest_error"] < 1e-4
    assert document["comparison"]["engines"]["baton"]["median_ms"] > 0
    assert document["subgraphs"] == ["subgraph_classifier_dense_0"]
    assert "classifier" in {kernel["backend"] for kernel in document["report"]["kernels"]}


def test_a_library_that_cannot_run_here_is_built_and_the_reason_told(model, monkeypatch, capsys):
    monkeypatch.setattr("compiler.runtime.cpu.missing_features", lambda needed: ["amx-tile"])
    found = demo.demonstrate(str(model), BuildOptions(), BenchOptions(peers=()), Steps())
    assert found.comparison is None
    assert found.report.kernels
    assert found.is_right
    demo.show_demonstration(found, 1)
    shown = capsys.readouterr().out
    assert "Not run: this machine's CPU has no amx-tile" in shown


def test_an_error_above_the_tolerance_is_exit_code_1(cli, model, monkeypatch):
    found = demo.Demonstration(Report("llvm", True, 3), [], error=2 * demo.TOLERANCE)
    monkeypatch.setattr(demo, "demonstrate", lambda *_: found)
    result = cli.invoke(app, ["demo", str(model), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["right"] is False


def test_the_example_backend_takes_the_end_of_the_network_only(model):
    demo_backend.register()
    demo_backend.register()
    mod, params = from_onnx(str(model), freeze_params=False)
    (found,) = subgraphs(partition(mod, demo_backend.NAME, params))
    assert "nn.dense" in found.operators
    assert "nn.conv2d" not in found.operators
    assert found.attrs["weights"] == "2560"
    assert {"dense_weight", "dense_bias"} <= set(found.input_names)


def test_only_installed_peers_are_compared_by_default(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find_spec(name)
    )
    assert bench.installed(demo.PEERS) == ("relax",)


def test_the_model_of_the_demo_is_part_of_the_package():
    found = find_model("squeezenet1_1")
    assert found.is_file()
    assert Path(fill_weights.__file__).parent == Path(compiler.__file__).parent / "models"
    assert '"models/*.onnx"' in Path(__file__).parents[3].joinpath("pyproject.toml").read_text()
