from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.cli.app import app
from compiler.cli.compile import BuildOptions, compile_model
from compiler.runtime import graph_executor, load_module


def test_compile_exports_a_library_that_computes_what_onnxruntime_does(library, reference):
    loaded = load_module(library)
    executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
    data = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")
    executor.run(data=data)
    np.testing.assert_allclose(executor.get_output(0).numpy(), reference(data), rtol=1e-4)


def test_json_describes_kernels_steps_and_size(cli, model, tmp_path):
    path = tmp_path / "lib.tar"
    result = cli.invoke(app, ["compile", str(model), "-o", str(path), "--json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    operators = [name for kernel in document["report"]["kernels"] for name in kernel["operators"]]
    assert "conv2d" in " ".join(operators)
    assert all(kernel["source"] for kernel in document["report"]["kernels"])
    assert document["library_bytes"] == path.stat().st_size
    report = document["report"]
    assert report["library_bytes"] == path.stat().st_size
    assert 0 < report["weights_bytes"] == document["weights_bytes"] < path.stat().st_size
    assert document["inputs"] == ["data: float32[1, 3, 8, 8]"]
    assert {"import", "build", "export"} <= set(document["seconds"])


def test_the_text_states_the_bytes_of_the_packed_parameters_and_of_the_library(
    cli, model, tmp_path
):
    path = tmp_path / "lib.so"
    result = cli.invoke(app, ["compile", str(model), "-o", str(path)])
    assert result.exit_code == 0, result.stderr
    report = load_module(path).report
    assert report["library_bytes"] == path.stat().st_size
    for count in (report["weights_bytes"], path.stat().st_size):
        assert f"({count} bytes)" in result.stdout


def test_the_table_shows_kernels_and_where_schedules_came_from(cli, model):
    result = cli.invoke(app, ["compile", str(model)])
    assert result.exit_code == 0, result.stderr
    assert "topi:fallback" in result.stdout
    assert "conv2d" in result.stdout


def test_a_claimed_subgraph_is_built_under_its_backend(cli, model, plugin):
    arguments = ["--backend", "mine", "--plugin", str(plugin), "--option", "ops=matmul", "--json"]
    result = cli.invoke(app, ["compile", str(model), *arguments])
    assert result.exit_code == 0, result.stderr
    kernels = json.loads(result.stdout)["report"]["kernels"]
    assert {kernel["backend"] for kernel in kernels if "nn.dense" in kernel["operators"]} == {
        "mine"
    }


class _SeenEnough(Exception):
    pass


def test_the_build_sees_level_disabled_passes_target_and_shapes(model, monkeypatch):
    seen = {}

    def build(mod, target, target_host, params):
        context = tvm.transform.PassContext.current()
        seen.update(level=context.opt_level, disabled=list(context.disabled_pass), target=target)
        seen.update(shape=[int(n) for n in mod["main"].params[0].ty.shape], params=set(params))
        raise _SeenEnough

    monkeypatch.setattr(relay, "build", build, raising=False)
    options = BuildOptions(
        target="llvm -mcpu=x86-64-v3",
        opt_level=2,
        disabled_passes=("FastMath",),
        precision="strict",
        shapes={"data": (1, 3, 8, 8)},
    )
    with pytest.raises(_SeenEnough):
        compile_model(model, options)
    assert seen == {
        "level": 2,
        "disabled": ["FastMath", "Winograd", "Strassen", "RoundRows"],
        "target": "llvm -mcpu=x86-64-v3",
        "shape": [1, 3, 8, 8],
        "params": {"conv_weight", "dense_weight", "dense_bias"},
    }


def test_a_log_that_is_missing_is_named(cli, model):
    for option in ("--log", "--auto-scheduler-log"):
        result = cli.invoke(app, ["compile", str(model), option, "absent.log"])
        assert result.exit_code == 1
        assert "absent.log" in result.stderr.splitlines()[-1]


def test_an_unknown_target_is_named(cli, model):
    result = cli.invoke(app, ["compile", str(model), "--target", "llvn"])
    assert result.exit_code == 1
    assert "llvn" in result.stderr.splitlines()[-1]


def test_a_library_with_an_unknown_suffix_is_refused(cli, model, tmp_path):
    path = tmp_path / "lib.dll"
    result = cli.invoke(app, ["compile", str(model), "-o", str(path)])
    assert result.exit_code == 1
    assert ".dll" in result.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_import_limits_reach_the_importer(cli, model):
    result = cli.invoke(app, ["compile", str(model), "--import-limit", "nodes=1"])
    assert result.exit_code == 1
    assert "more than 1 nodes" in result.stderr


@pytest.mark.parametrize("limit", ["nodes", "nodes=many", "bytes=1", "nodes=-1"])
def test_a_malformed_import_limit_is_rejected(cli, model, limit):
    result = cli.invoke(app, ["compile", str(model), "--import-limit", limit])
    assert result.exit_code == 2


def test_the_fastest_placement_is_measured_once_and_built(cli, model, monkeypatch, tmp_path):
    log = tmp_path / "placements.log"
    options = ["--backend", "onnxruntime,llvm", "--placement", "fastest", "--json"]
    options += ["--placement-log", str(log)]
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    result = cli.invoke(app, ["compile", str(model), *options])
    assert result.exit_code == 0, result.stderr
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("placement: ")]
    names = {name for name, _ in re.findall(r"(\w+) (\d+\.\d+) ms", line)}
    assert names >= {"baton", "onnxruntime", "llvm"}
    text = log.read_text()
    again = cli.invoke(app, ["compile", str(model), *options])
    assert again.exit_code == 0, again.stderr
    assert line in again.stderr.splitlines()
    assert log.read_text() == text
