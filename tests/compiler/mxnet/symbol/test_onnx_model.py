"""Symbols as ONNX models, run by onnxruntime."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import partition
from compiler.backends.onnx_export import why_inexpressible
from compiler.errors import FrontendError, UnsupportedOperatorError
from compiler.mxnet.symbol import loads, to_onnx

onnxruntime = pytest.importorskip("onnxruntime")

X = np.array([[-1.0, 0.5, 2.0]], "float32")


def symbol(op: str = "relu") -> object:
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "w", "inputs": []},
        {"op": "broadcast_mul", "name": "scaled", "inputs": [[0, 0, 0], [1, 0, 0]]},
        {"op": op, "name": "act", "inputs": [[2, 0, 0]]},
    ]
    heads = [[3, 0, 0], [3, 0, 0], [0, 0, 0]]
    return loads(json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "heads": heads}))


def test_outputs_have_the_symbols_names_and_subgraphs_become_their_bodies():
    def supported(graph, ids, options):
        ids[2] = ids[3] = -1

    partition.register("sees", [partition.Strategy("s", supported)])
    try:
        parts = symbol().optimize_for("sees", {"w": np.float32([3.0])})
    finally:
        partition.unregister("sees")
    assert any(node.subgraphs for node in parts.graph.nodes)
    model = to_onnx(parts, {"w": np.float32([3.0])}, {"x": X.shape})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert [each.name for each in session.get_inputs()] == ["x"]
    names = [each.name for each in session.get_outputs()]
    assert names == [*parts.list_outputs()[:2], "x_1"]
    first, second, same = session.run(None, {"x": X})
    np.testing.assert_allclose(first, np.maximum(3 * X, 0))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(same, X)


def test_what_lacks_a_shape_or_a_form_in_onnx_is_named():
    with pytest.raises(FrontendError, match="shape"):
        to_onnx(symbol(), {}, {})
    with pytest.raises(UnsupportedOperatorError, match="gamma"):
        to_onnx(symbol("gamma"), {"w": np.float32([3.0])}, {"x": X.shape})


@pytest.mark.parametrize(
    ("op", "attrs", "expressible"),
    [
        ("nn.adaptive_avg_pool2d", {"layout": "NCHW", "output_size": "[1, 1]"}, True),
        ("nn.adaptive_avg_pool2d", {"layout": "NCHW", "output_size": "[2, 2]"}, False),
        ("nn.adaptive_avg_pool2d", {"layout": "NHWC", "output_size": "[1, 1]"}, False),
        ("nn.conv3d", {"data_layout": "NCDHW", "dilation": "[2, 2, 2]"}, True),
        ("nn.conv2d", {"data_layout": "NCHW", "kernel_layout": "HWIO"}, False),
        ("nn.conv1d_transpose", {"data_layout": "NCW", "kernel_layout": "IOW"}, True),
        ("nn.conv1d_transpose", {"data_layout": "NCW", "dilation": "[2]"}, False),
        ("nn.max_pool1d", {"layout": "NCW", "dilation": "[2]"}, True),
        ("nn.avg_pool1d", {"layout": "NCW", "dilation": "[2]"}, False),
    ],
)
def test_only_forms_that_onnx_has_are_claimed(op, attrs, expressible):
    assert (not why_inexpressible(op, attrs)) == expressible
