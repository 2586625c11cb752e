"""Networks of float16 have the kernels of their float32 forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import PassContext, relay
from compiler.runtime import graph_executor

TARGET = "llvm -mcpu=x86-64-v3"


def network(dtype: str) -> tuple[tvm.IRModule, Any]:
    """Two convolutions of one image, joined for a third, and a spelled-out GELU."""
    rng = np.random.default_rng(0)
    shapes = {"a": (16, 8, 1, 1), "b": (16, 8, 3, 3), "c": (8, 32, 1, 1)}
    arrays = {name: rng.standard_normal(shape) / shape[1] for name, shape in shapes.items()}
    arrays |= {"root": np.sqrt(2.0), "one": np.float64(1), "half": np.float64(0.5)}
    kind = TensorProto.FLOAT if dtype == "float32" else TensorProto.FLOAT16
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["u"]),
        helper.make_node("Conv", ["x", "b"], ["v"], pads=[1] * 4),
        helper.make_node("Relu", ["u"], ["ur"]),
        helper.make_node("Relu", ["v"], ["vr"]),
        helper.make_node("Concat", ["ur", "vr"], ["w"], axis=1),
        helper.make_node("Conv", ["w", "c"], ["z"]),
        helper.make_node("Div", ["z", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["z", "f"], ["g"]),
        helper.make_node("Mul", ["g", "half"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, [1, 8, 7, 6])],
        [helper.make_tensor_value_info("y", kind, [1, 8, 7, 6])],
        [numpy_helper.from_array(np.asarray(v, dtype), name) for name, v in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return relay.frontend.from_onnx(model)


@pytest.mark.parametrize("level", [0, 3])
def test_halves_have_the_kernels_of_float32_and_its_results(level: int) -> None:
    x = np.random.default_rng(1).standard_normal((1, 8, 7, 6))
    results, kernels = [], []
    for dtype in ("float32", "float16"):
        mod, params = network(dtype)
        with PassContext(opt_level=level):
            library = relay.build(mod, TARGET, params=params)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.run(x=x.astype(dtype))
        results.append(executor.get_output(0).numpy())
        used = [[name for name in k.operators if name != "cast"] for k in library.report.kernels]
        kernels.append([names for names in used if names])
    assert kernels[0] == kernels[1]
    assert any("gelu" in names for names in kernels[1])
    wide, short = results
    assert short.dtype == "float16"
    assert 0 < np.abs(wide - short).max() < 2e-3 * np.abs(wide).max()
