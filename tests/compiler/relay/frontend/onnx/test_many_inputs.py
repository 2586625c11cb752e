"""ONNX operators with hundreds of inputs."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.runtime import graph_executor


def model(nodes, count: int):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [count, 4])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "many", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def rows(count: int):
    """A node that splits x into rows, and the rows' names."""
    names = [f"row{i}" for i in range(count)]
    return helper.make_node("Split", ["x"], names, axis=0, num_outputs=count), names


def run(proto, x: np.ndarray) -> np.ndarray:
    mod, params = relay.frontend.from_onnx(proto)
    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    return module.get_output(0).numpy()


@pytest.mark.parametrize(
    ("operator", "reference"),
    [("Sum", np.sum), ("Max", np.max), ("Min", np.min), ("Mean", np.mean)],
)
def test_reduction_of_many_inputs_has_the_value_of_numpy(operator, reference):
    split, names = rows(40)
    x = np.random.default_rng(0).standard_normal((40, 4)).astype("float32")
    x[33, 2] = np.nan
    result = run(model([split, helper.make_node(operator, names, ["y"])], 40), x)
    np.testing.assert_allclose(result[0], reference(x, axis=0), 1e-5, 1e-5)


def test_sum_of_more_inputs_than_python_recurses_builds():
    proto = model([helper.make_node("Sum", ["x"] * 1500, ["y"])], 1)
    result = run(proto, np.ones((1, 4), "float32"))
    np.testing.assert_array_equal(result, np.full((1, 4), 1500.0))


def test_chain_of_sums_builds_deeper_than_python_recurses():
    count = 1200
    names = ["x", *(f"a{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("Add", [names[i], "x"], [names[i + 1]]) for i in range(count)]
    result = run(model(nodes, 1), np.ones((1, 4), "float32"))
    np.testing.assert_array_equal(result, np.full((1, 4), count + 1.0))
