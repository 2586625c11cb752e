"""Models quantized by onnxruntime, in the forms that Baton's measurements are made with."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from scripts.models import quantized

pytest.importorskip("onnxruntime")


def test_each_kind_has_the_operators_of_its_form(tmp_path, monkeypatch, capsys):
    weights = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "dense.onnx")
    monkeypatch.setattr(
        "sys.argv", ["make_quantized_models.py", str(tmp_path / "q"), str(tmp_path / "dense.onnx")]
    )
    quantized.main()
    written = capsys.readouterr().out.split()
    assert written == [
        str(tmp_path / "q" / f"dense_{kind}.onnx")
        for kind in ("qdq", "qoperator", "dynamic", "f16")
    ]
    expected = ("DequantizeLinear", "QLinearMatMul", "MatMulInteger", "MatMul")
    for path, operator in zip(written, expected):
        assert operator in {node.op_type for node in onnx.load(path).graph.node}
