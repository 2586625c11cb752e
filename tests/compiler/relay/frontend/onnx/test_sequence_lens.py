"""Recurrent layers over sequences whose lengths only running tells, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.runtime.graph_executor import GraphModule

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTH, BATCH, INPUTS, HIDDEN = 5, 3, 4, 8


@pytest.mark.parametrize(
    ("kind", "extent", "attributes"),
    [
        ("RNN", LENGTH, {}),
        ("GRU", "seq", {"linear_before_reset": 1}),
        ("LSTM", "seq", {}),
        ("LSTM", LENGTH, {"clip": 0.5}),
    ],
)
def test_each_sequence_ends_where_it_ends(
    kind: str, extent: Any, attributes: dict[str, Any]
) -> None:
    random = np.random.default_rng(0)
    rows, states = GATES[kind] * HIDDEN, 2 if kind == "LSTM" else 1
    shapes = {"w": (2, rows, INPUTS), "r": (2, rows, HIDDEN), "b": (2, 2 * rows)}
    weights = {name: random.normal(size=shape) * 0.5 for name, shape in shapes.items()}
    inputs = {
        "x": random.normal(size=(LENGTH, BATCH, INPUTS)),
        "h": random.normal(size=(2, BATCH, HIDDEN)),
        "c": random.normal(size=(2, BATCH, HIDDEN)),
    }
    operands = ["x", "w", "r", "b", "lens", "h", "c"][: 5 + states]
    names = ["y", "yh", "yc"][: 1 + states]
    node = helper.make_node(
        kind, operands, names, hidden_size=HIDDEN, direction="bidirectional", **attributes
    )
    declared = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, BATCH, INPUTS]),
        helper.make_tensor_value_info("lens", TensorProto.INT32, [BATCH]),
        *(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, BATCH, HIDDEN])
            for name in ("h", "c")[:states]
        ),
    ]
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * (4 if name == "y" else 3))
        for name in names
    ]
    initializers = [
        numpy_helper.from_array(value.astype("float32"), name) for name, value in weights.items()
    ]
    graph = helper.make_graph([node], "recurrent", declared, results, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    mod, params = relay.frontend.from_onnx(model)
    module = GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    given = {name: inputs[name].astype("float32") for name in ("x", "h", "c")[: 1 + states]}
    for lengths in ([5, 5, 5], [5, 2, 1], [1, 4, 3]):
        given["lens"] = np.array(lengths, "int32")
        module.run(**given)
        for index, expected in enumerate(session.run(None, given)):
            own = module.get_output(index).numpy()
            np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)
