"""Scheduling of kernels whose arguments are not only buffers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.relay.frontend import from_onnx
from compiler.runtime import graph_executor


@pytest.mark.parametrize("level", [0, 3])
def test_a_kernel_may_take_numbers(level):
    """An extent that is computed while running is an argument of the range's kernel."""
    names = ("start", "limit", "delta")
    graph = helper.make_graph(
        [helper.make_node("Range", names, ["y"])],
        "range",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(from_onnx(model)[0], "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for bounds in ((1.0, 4.0, 0.5), (3.0, 1.0, -1.0), (1.0, 0.0, 1.0)):
        module.run(**{name: np.array(value, "float32") for name, value in zip(names, bounds)})
        np.testing.assert_allclose(module.get_output(0).numpy(), np.arange(*bounds), rtol=1e-6)
