"""The table of what a CUDA build makes of models."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from scripts.reports import gpu_kernels


def test_a_convolution_is_on_tensor_cores_where_it_may_be_rounded(tmp_path, monkeypatch, capsys):
    weight = numpy_helper.from_array(np.ones((16, 8, 3, 3), "float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 10, 10))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 16, 8, 8))],
        [weight],
    )
    path = tmp_path / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    monkeypatch.setattr(sys, "argv", ["gpu_kernels.py", str(path), "--arch", "sm_80"])
    gpu_kernels.main()
    single, rounded, half = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| network")
    )
    assert single[:6] == ["network", "float32", "1", "1", "0.00", "0 %"]
    assert (rounded[1], rounded[5]) == ("tf32", "100 %")
    assert (half[1], half[5]) == ("float16", "100 %")
    seconds, share = float(single[6]), int(single[7].removesuffix(" %"))
    assert seconds > 2  # the launch
    assert 0 <= share < 100
    assert single[8] == "cuda.float32_products 1"
