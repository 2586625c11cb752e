"""Long chains behind every kind of operator: right numbers, and code that grows with the chain."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.lowering import bind, pipeline
from compiler.runtime import graph_executor

TARGET = tvm.target.Target("llvm")
MIXED = ["tanh", "sigmoid", "residual", "square", "silu", "tanh"]
PLACES = {
    "dense": ("MatMul", (4, 8), (8, 16), {}),
    "batch_matmul": ("MatMul", (2, 4, 8), (2, 8, 16), {}),
    "conv2d": ("Conv", (1, 8, 4, 4), (8, 8, 1, 1), {}),
    "depthwise": ("Conv", (1, 8, 4, 4), (8, 1, 1, 1), {"group": 8}),
    "pooling": ("AveragePool", (1, 8, 4, 4), None, {"kernel_shape": [1, 1]}),
    "no anchor": ("Identity", (4, 16), None, {}),
}


def chain(place, steps):
    """An ONNX model of the operator and `steps` activations, with inputs and the result."""
    name, shape, weight, attributes = PLACES[place]
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=shape).astype("float32")}
    if weight:
        inputs["w"] = (0.3 * rng.normal(size=weight)).astype("float32")
    x, w = (inputs.get(each, np.zeros(1)).astype("float64") for each in ("x", "w"))
    if name == "MatMul":
        first = x @ w
    elif name == "Conv" and attributes:
        first = x * w[:, 0]
    elif name == "Conv":
        first = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    else:
        first = x
    inputs["r"] = rng.normal(size=first.shape).astype("float32")
    residual = inputs["r"].astype("float64")
    nodes = [helper.make_node(name, ["x", "w"] if weight else ["x"], ["v0"], **attributes)]
    value = first
    for step in range(steps):
        old, new = f"v{step}", f"v{step + 1}"
        kind = MIXED[step % len(MIXED)]
        if kind in ("tanh", "sigmoid"):
            nodes.append(helper.make_node(kind.capitalize(), [old], [new]))
            value = np.tanh(value) if kind == "tanh" else 1 / (1 + np.exp(-value))
        elif kind == "residual":
            nodes.append(helper.make_node("Add", [old, "r"], [new]))
            value = value + residual
        elif kind == "square":
            nodes.append(helper.make_node("Mul", [old, old], [f"{old}_square"]))
            nodes.append(helper.make_node("Sub", [f"{old}_square", old], [new]))
            value = value * value - value
        else:
            nodes.append(helper.make_node("Sigmoid", [old], [f"{old}_gate"]))
            nodes.append(helper.make_node("Mul", [old, f"{old}_gate"], [new]))
            value = value / (1 + np.exp(-value))
    nodes.append(helper.make_node("Identity", [f"v{steps}"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, value.shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), inputs, value


def code_size(model, opt_level=3):
    """Characters of the text of all scheduled kernels of a model."""
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=opt_level):
        scheduled = pipeline.scheduled(bind.bind_params(mod, params)[0], TARGET)
    kernels = [f for f in scheduled.mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    return sum(len(func.script()) for func in kernels)


@pytest.mark.parametrize("place", PLACES)
def test_thirty_activations_grow_the_code_no_more_than_linearly(place):
    sizes = [code_size(chain(place, steps)[0]) for steps in (12, 30)]
    assert sizes[1] <= 3.5 * sizes[0], sizes


@pytest.mark.parametrize("place", ["dense", "depthwise"])
def test_a_chain_behind_an_anchor_computes_what_numpy_computes(place):
    model, inputs, want = chain(place, 6)
    onnx.checker.check_model(model)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(**inputs)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, 1e-4, 1e-5)
