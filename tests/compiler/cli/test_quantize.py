"""`baton quantize`: the model that it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from compiler.cli.app import app
from compiler.target import parse
from schedules.x86.machine.dot_product import narrow_steps, vnni_lanes

LAYERS = ("first", "second", "dense")


def network(opset: int = 17) -> onnx.ModelProto:
    """Two convolutions, one with a batch norm, and a dense layer."""
    rng = np.random.default_rng(4)

    def weight(name: str, *shape: int, low: float = -0.5) -> Any:
        return numpy_helper.from_array(rng.uniform(low, 0.5, shape).astype("float32"), name)

    weights = [weight("w0", 6, 3, 3, 3), weight("w1", 4, 6, 1, 1), weight("w2", 5, 4)]
    weights += [weight(name, 6) for name in ("b0", "gamma", "beta", "mean")]
    weights += [weight("variance", 6, low=0.2), weight("b2", 5)]
    norm = ["c0", "gamma", "beta", "mean", "variance"]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", norm, ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["c1"], name="second"),
        helper.make_node("GlobalAveragePool", ["c1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], name="dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the model and two samples, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "model.onnx")
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(5)
    np.save("data/0.npy", rng.standard_normal((1, 3, 8, 8)).astype("float32"))
    np.savez("data/1.npz", x=rng.standard_normal((1, 3, 8, 8)).astype("float32"))
    return tmp_path


def quantize(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["quantize", "model.onnx", "--data", "data", *arguments])


@pytest.mark.parametrize("calibration", ["minmax", "percentile", "kl"])
def test_onnxruntime_runs_what_it_writes_near_the_floats(files, calibration):
    onnxruntime = pytest.importorskip("onnxruntime")
    result = quantize("--calibration", calibration, "--json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert [each["layer"] for each in said["layers"]] == list(LAYERS)
    assert said["samples"] == 2 and said["path"] == "model_int8.onnx"
    assert all(0 < each["of_result"] < 0.1 for each in said["layers"])
    assert said["layers"][0]["of_data"] == 0 and said["layers"][0]["added"] > 0

    model = onnx.load("model_int8.onnx")
    onnx.checker.check_model(model, full_check=True)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == 3 and kinds.count("DequantizeLinear") == 8
    assert "BatchNormalization" not in kinds
    x = np.load("data/0.npy")
    wide, short = (
        onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for name in ("model.onnx", "model_int8.onnx")
    )
    assert 0 < np.abs(wide[0] - short[0]).max() < 0.1 * np.abs(wide[0]).max()


def test_layers_that_are_skipped_stay_floats(files):
    result = quantize("--skip", "first", "--skip", "dense", "-o", "out.onnx")
    assert result.exit_code == 0, result.stderr
    assert "second" in result.stdout and "first" not in result.stdout
    weights = {each.name: each.data_type for each in onnx.load("out.onnx").graph.initializer}
    assert weights["w0"] == weights["w2"] == TensorProto.FLOAT
    assert weights["w1_along_0_quantized"] == TensorProto.INT8


@pytest.mark.parametrize(("bits", "most"), [("8", 127), ("7", 63)])
def test_weights_have_as_many_bits_as_are_asked_for(files, bits, most):
    result = quantize("--weight-bits", bits, "-o", "out.onnx")
    assert result.exit_code == 0, result.stderr
    weights = [
        numpy_helper.to_array(each)
        for each in onnx.load("out.onnx").graph.initializer
        if each.data_type == TensorProto.INT8 and len(each.dims) > 1
    ]
    assert len(weights) == len(LAYERS)
    assert all(np.abs(each.astype("int32")).max() <= most for each in weights)
    whole = [each if each.ndim == 2 else each.transpose(0, 2, 3, 1) for each in weights]
    fits = 2 if bits == "7" else 0
    assert {narrow_steps(each, parse("llvm -mcpu=x86-64-v3")) for each in whole} == {fits}


def test_what_is_wrong_is_said(files):
    def fails(*arguments: str, status: int = 1) -> str:
        result = quantize(*arguments)
        assert result.exit_code == status and not (files / "model_int8.onnx").exists()
        return " ".join(result.stderr.split())

    assert "'best' is not one of minmax" in fails("--calibration", "best", status=2)
    assert "greater than or equal to" in fails("--weight-bits", "6", status=2)
    assert "no layer 'third' to skip; the first are first, second, dense" in fails(
        "--skip", "third"
    )
    assert "has no Conv, Gemm, MatMul" in fails(*(f"--skip={name}" for name in LAYERS))
    assert "is not a folder with samples" in fails("--data", "model.onnx")
    np.savez("data/2.npz", other=np.zeros(1))
    assert "has other; the model reads x" in fails()
    np.savez("data/2.npz", x=np.full((1, 3, 8, 8), np.inf))
    assert "not finite" in fails()
    onnx.save(network(opset=12), "model.onnx")
    assert "operator set 12" in fails()
    (files / "model.onnx").write_bytes(b"no model")
    assert "can't read 'model.onnx' as ONNX" in fails()


def test_compile_quantizes_first_when_it_is_asked_for_int8(files):
    options = ["compile", "model.onnx", "-o", "int8.so", "--precision", "int8"]
    result = CliRunner().invoke(app, [*options, "--data", "data", "--json"])
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    multiplied = [each["operands"] for each in said["report"]["kernels"] if each["operands"]]
    of_bytes = "uint8 x int8" if vnni_lanes(parse("llvm")) else "int16"
    assert multiplied == [of_bytes] * len(LAYERS)
    assert [each["layer"] for each in said["quantized"]["layers"]] == list(LAYERS)
    assert sorted(each.name for each in files.iterdir()) == ["data", "int8.so", "model.onnx"]

    narrow = ["--data", "data", "--weight-bits", "7", "--target", "llvm -mcpu=x86-64-v3"]
    result = CliRunner().invoke(app, [*options, *narrow, "--json"])
    assert result.exit_code == 0, result.stderr
    kernels = json.loads(result.stdout)["report"]["kernels"]
    assert [each["instruction"] for each in kernels if each["operands"]] == ["vpmaddubsw"] * 3

    result = CliRunner().invoke(app, options)
    assert result.exit_code == 1
    assert "--precision int8 needs samples" in " ".join(result.stderr.split())
    result = CliRunner().invoke(app, ["compile", "model.onnx", "--data", "data"])
    assert result.exit_code == 1 and "--precision int8" in " ".join(result.stderr.split())
    result = CliRunner().invoke(app, ["bench", "model.onnx", "--precision", "int8"])
    assert result.exit_code == 2 and "is not one of" in " ".join(result.stderr.split())
