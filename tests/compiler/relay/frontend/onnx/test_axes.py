"""Axes that are not of the tensor are refused with the node that has them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import UnsupportedOperatorError
from compiler.relay.frontend.onnx import from_onnx

INDICES = np.zeros((2, 3), "int64")
CASES = {
    "Gather": ({"i": INDICES}, 4),
    "GatherElements": ({"i": INDICES}, 4),
    "ScatterElements": ({"i": INDICES, "u": np.zeros((2, 3), "float32")}, -3),
    "Split": ({}, 2),
    "LayerNormalization": ({"s": np.ones(3, "float32")}, 2),
    "OneHot": ({"d": np.array(3), "v": np.array([0, 1], "float32")}, 9),
    "CumSum": ({"a": np.array(5)}, 5),
    "TopK": ({"k": np.array([1])}, 4),
}


@pytest.mark.parametrize("kind", CASES)
def test_an_axis_that_is_not_of_the_tensor_is_refused(kind):
    constants, axis = CASES[kind]
    attributes = {} if kind == "CumSum" else {"axis": axis}
    node = helper.make_node(kind, ["x", *constants], ["y"], name="here", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    with pytest.raises(UnsupportedOperatorError, match=f"'here'.*the axis {axis} is not one of"):
        from_onnx(model)
