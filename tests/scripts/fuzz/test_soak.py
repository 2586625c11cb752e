"""A short soak ends without faults, and one that sees another result says so."""

import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper


def test_a_short_soak_runs_builds_and_loads(tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, tmp_path / "square.onnx")
    command = [
        sys.executable,
        "-m",
        "scripts.fuzz.soak",
        "--minutes",
        "0.05",
        str(tmp_path / "square.onnx"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "'runs':" in done.stdout and "'loads':" in done.stdout and "no faults" in done.stdout


def test_another_result_or_an_error_is_a_fault(tmp_path):
    from scripts.fuzz import soak as script

    network = script.Network.__new__(script.Network)
    network.name, network.expected = "n", [np.ones(2)]
    soak = script.Soak([network], tmp_path)
    soak.note("runs", network, network.is_right([np.array([1.0, np.nextafter(1.0, 2.0)])]))
    soak.watched(network.executor, None)
    assert soak.counts == {"runs": 1}
    assert [fault.split(":")[0] for fault in soak.faults] == ["runs of n", "executor"]
