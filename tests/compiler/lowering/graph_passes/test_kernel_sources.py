"""Names of the model's nodes in build reports."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.lowering.report import Report


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """stem, then two equal pairs of a convolution and a rectifier, then a sum with the stem."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["s"], "stem", pads=[1, 1, 1, 1])]
    value = "s"
    for number in (1, 2):
        at = [f"c{number}", f"r{number}"]
        nodes.append(
            helper.make_node("Conv", [value, "w"], [at[0]], f"conv{number}", pads=[1, 1, 1, 1])
        )
        nodes.append(helper.make_node("Relu", [at[0]], [at[1]], f"relu{number}"))
        value = at[1]
    nodes.append(helper.make_node("Add", [value, "s"], ["sum"], "join"))
    nodes.append(helper.make_node("Softmax", ["sum"], ["y"], "probabilities", axis=1))
    weights = np.ones((8, 8, 3, 3), "float32") / 100
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_each_kernel_names_the_nodes_of_all_its_calls(
    model: onnx.ModelProto, opt_level: int
) -> None:
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=opt_level):
        report = relay.build(mod, "llvm", params=params).report
    named = [name for kernel in report.kernels for name in kernel.nodes]
    assert sorted({*named}) == [
        *("conv1", "conv2", "join", "probabilities", "relu1", "relu2", "stem")
    ]
    for kernel in report.kernels:
        if "nn.conv2d" in kernel.operators:
            assert sum(name in ("stem", "conv1", "conv2") for name in kernel.nodes) == kernel.calls
    assert "stem" in str(report)
    assert Report.from_json(report.to_json()) == report


def test_a_module_without_names_has_none_in_the_report() -> None:
    x = relay.var("x", shape=(4, 4))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    report = relay.build(mod, "llvm").report
    assert [kernel.nodes for kernel in report.kernels] == [[]]
