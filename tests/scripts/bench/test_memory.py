"""The memory of processes that run one small model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def test_it_knows_the_memory_of_a_weight_that_is_read_and_of_both_engines(tmp_path: Path) -> None:
    size = 2048
    weight = np.random.default_rng(0).standard_normal((size, size)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, size])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "dense.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, path)
    command = [sys.executable, "-m", "scripts.bench.memory", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)[str(path)]
    assert set(found) == {"baton", "onnxruntime"}
    megabytes = weight.nbytes / 1e6
    own = found["baton"]
    assert own["imported"] <= own["loaded"] < own["imported"] + 0.5 * megabytes
    assert own["loaded"] + 0.9 * megabytes < own["steady"] <= own["peak"]
    assert found["onnxruntime"]["peak"] > found["onnxruntime"]["imported"] + 0.9 * megabytes
