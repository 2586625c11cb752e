"""A tiny network as an ONNX file, and what onnxruntime makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from compiler.cli.compile import BuildOptions, compile_model
from compiler.partition import list_partitioners, unregister


@pytest.fixture(autouse=True)
def _clean_registry():
    before = set(list_partitioners())
    yield
    for name in set(list_partitioners()) - before:
        unregister(name)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """conv -> relu -> flatten -> gemm on `data` of (1, 3, 8, 8)."""
    rng = np.random.default_rng(0)
    weights = {
        "conv_weight": rng.standard_normal((4, 3, 3, 3)).astype("float32"),
        "dense_weight": rng.standard_normal((10, 256)).astype("float32"),
        "dense_bias": rng.standard_normal(10).astype("float32"),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["data", "conv_weight"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("Gemm", ["f", "dense_weight", "dense_bias"], ["scores"], transB=1),
        ],
        "tiny",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="session")
def library(model: Path) -> Path:
    """The model's library, exported."""
    path = model.with_name("tiny.so")
    compile_model(model, BuildOptions(), path)
    return path


@pytest.fixture(scope="session")
def reference(model: Path):
    """`reference(data)` is the model's output by onnxruntime."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return lambda data: session.run(None, {"data": data})[0]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Registers "mine", which claims the operators that the option `ops` names."""
    path = tmp_path / "my_backend.py"
    path.write_text(
        "import json\n"
        "from compiler.partition import Strategy, register\n"
        "def claim(graph_json, ids, options):\n"
        "    for index, node in enumerate(json.loads(graph_json)['nodes']):\n"
        "        if node['op'] in options['ops'].split('+'):\n"
        "            ids[index] = -1\n"
        "register('mine', Strategy('by_name', claim))\n"
    )
    return path


@pytest.fixture
def cli() -> CliRunner:
    return CliRunner()
