from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler import target as targets
from compiler.cli.profile import KernelTime
from scripts.bench import kernels, machine_peak


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "1")  # the command sets it; this puts it back


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(kernels, "peak_gflops", lambda target, threads: 100.0)
    monkeypatch.setattr(kernels, "memory_gbytes", lambda target, threads: 10.0)


@pytest.fixture
def measured(monkeypatch, capsys):
    """The output of the program for some arguments."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["kernels", *arguments])
        assert kernels.main() == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """conv -> relu -> flatten -> gemm."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)), "v": rng.standard_normal((256, 10))}
    nodes = [
        helper.make_node("Conv", ["data", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["scores"]),
    ]
    values = (("data", [1, 3, 8, 8]), ("scores", [1, 10]))
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, shape)] for name, shape in values)
    arrays = [numpy_helper.from_array(v.astype("float32"), name) for name, v in weights.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, arrays)
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def kernel(gflops, gbytes):
    return KernelTime("k", ["conv2d"], "rule", "topi:fallback", [], 1, 1.0, 1.0, gflops, gbytes)


def test_every_anchored_kernel_is_held_against_the_machine(measured, model, machine):
    output = measured(str(model), str(model), "--repeat", "2", "--json")
    found = json.loads(output)
    assert (found["peak_gflops"], found["memory_gbytes"]) == (100.0, 10.0)
    operators = [" ".join(each["kernel"]["operators"]) for each in found["workloads"]]
    assert len(operators) == 2
    assert any("conv2d" in text for text in operators)
    assert any("matmul" in text or "nn.dense" in text for text in operators)
    for each in found["workloads"]:
        assert each["models"] == [model.name]
        assert each["of_peak"] == pytest.approx(each["kernel"]["gflops"] / 100)
        assert each["of_memory"] == pytest.approx(each["kernel"]["gbytes"] / 10)


def test_a_model_is_held_against_the_limit_of_all_its_kernels(measured, model, machine):
    output = measured(str(model), "--repeat", "2", "--json")
    found = json.loads(output)
    (distance,) = found["models"]
    assert distance["model"] == model.name
    anchored = sum(
        each["kernel"]["milliseconds"] * max(each["of_peak"], each["of_memory"])
        for each in found["workloads"]
    )
    assert distance["limit"] >= anchored * 0.999 > 0


def test_the_table_names_the_machine_and_the_workloads(measured, model, machine):
    output = measured(str(model), "--repeat", "1")
    assert "100 GFLOP/s, 10.0 GB/s" in output
    assert "conv2d" in output


def test_what_would_take_longer_alone_bounds_a_kernel():
    assert kernels.judge(kernel(50, 1), "m", 100, 10).bound == "compute"
    assert kernels.judge(kernel(5, 5), "m", 100, 10).bound == "memory"


def test_the_workload_with_the_most_time_to_win_comes_first():
    good = kernels.judge(kernel(90, 1), "m", 100, 10)
    bad = kernels.judge(kernel(10, 1), "m", 100, 10)
    from_cache = kernels.judge(kernel(10, 30), "m", 100, 10)
    ordered = sorted([good, from_cache, bad], key=kernels._to_win)
    assert ordered == [from_cache, good, bad]


def test_wider_vectors_have_no_lower_peak(monkeypatch):
    monkeypatch.setattr(machine_peak, "_STEPS", 20_000)
    narrow = machine_peak.peak_gflops(targets.parse("llvm -mcpu=x86-64"), 1)
    wide = machine_peak.peak_gflops(targets.parse("llvm -mcpu=x86-64-v3"), 1)
    # A core whose units are half as wide as its vectors (Zen 1) gains nothing.
    assert 0.1 < narrow < 1.5 * wide < 10_000


def test_memory_is_read_at_a_finite_rate(monkeypatch):
    monkeypatch.setattr(machine_peak, "_READ_BYTES", 1 << 24)
    assert 0.1 < machine_peak.memory_gbytes(targets.parse("llvm"), 1) < 10_000


@pytest.mark.parametrize(
    ("weight", "instruction", "operands"),
    [(3, "vpmaddubsw", "uint8 x int8"), (100, "vpmaddwd", "int16")],
)
def test_a_kernel_is_held_against_its_own_instruction(
    measured, tmp_path, machine, monkeypatch, weight, instruction, operands
):
    asked = []

    def peak_of(instruction, target, threads):
        asked.append(instruction)
        return 400.0

    monkeypatch.setattr(kernels, "peak_of", peak_of)
    x = numpy_helper.from_array(np.full((8, 16), weight, "int8"), "w")
    scales = [numpy_helper.from_array(np.float32(0.1), "s")]
    scales += [
        numpy_helper.from_array(np.zeros((), kind), f"z_{kind}") for kind in ("uint8", "int8")
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z_uint8"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z_uint8"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z_int8"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", 1, [4, 8])],
        [helper.make_tensor_value_info("y", 1, [4, 16])],
        [x, *scales],
    )
    path = tmp_path / "dense.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    target = "llvm -mcpu=x86-64-v3"
    output = measured(str(path), "--repeat", "1", "--json", "--target", target)
    (workload,) = json.loads(output)["workloads"]
    assert asked == [instruction]
    assert workload["kernel"]["operands"] == operands
    assert workload["of_peak"] == pytest.approx(workload["kernel"]["gflops"] / 400)


@pytest.mark.parametrize(
    "instruction", ["vfmadd", "vdpbf16ps", "vpdpbusd", "vpmaddwd", "vpmaddubsw"]
)
def test_instructions_of_this_cpu_have_peaks(monkeypatch, instruction):
    monkeypatch.setattr(machine_peak, "_STEPS", 2_000)
    found = machine_peak.peak_of(instruction, targets.parse("llvm"), 1)
    assert found is None or found > 0.1
    assert machine_peak.peak_of("vpdpbusd", targets.parse("llvm -mcpu=x86-64-v3"), 1) is None
    for always in ("vpmaddwd", "vpmaddubsw"):
        assert (machine_peak.peak_of(always, targets.parse("llvm -mcpu=x86-64-v3"), 1) or 0) > 0.1
