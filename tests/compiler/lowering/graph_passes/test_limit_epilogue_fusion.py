"""Long chains behind every kind of operator: right numbers, and code that grows with the chain."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.lowering import bind, pipeline
from compiler.runtime import graph_executor

TARGET = tvm.target.Target("llvm")


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


MIXED = {
    "tanh": ([("Tanh", "x", {})], lambda x, r: np.tanh(x)),
    "sigmoid": ([("Sigmoid", "x", {})], lambda x, r: sigmoid(x)),
    "residual": ([("Add", "xr", {})], lambda x, r: x + r),
    "mish": ([("Mish", "x", {})], lambda x, r: x * np.tanh(softplus(x))),
    "square": ([("Mul", "xx", {}), ("Sub", "0x", {})], lambda x, r: x * x - x),
    "gelu": ([("Gelu", "x", {})], lambda x, r: x * (1 + erf(x / 2**0.5)) / 2),
    "mish, spelled out": (
        [("Softplus", "x", {}), ("Tanh", "0", {}), ("Mul", "x1", {})],
        lambda x, r: x * np.tanh(softplus(x)),
    ),
    "silu": ([("Sigmoid", "x", {}), ("Mul", "x0", {})], lambda x, r: x * sigmoid(x)),
    "gelu by tanh": (
        [("Gelu", "x", {"approximate": "tanh"})],
        lambda x, r: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    ),
    "elu": ([("Elu", "x", {})], lambda x, r: np.where(x < 0, np.expm1(x), x)),
    "hardswish": ([("HardSwish", "x", {})], lambda x, r: x * np.clip(x / 6 + 0.5, 0, 1)),
    "selu": (
        [("Selu", "x", {})],
        lambda x, r: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
    ),
    "softplus": ([("Softplus", "x", {})], lambda x, r: softplus(x)),
}
"""Operators of each step with their operands (the step's own x, the residual r, numbers of the
operators before), and what they compute."""
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
    kinds = list(MIXED.items())
    for step in range(steps):
        old, new = f"v{step}", f"v{step + 1}"
        operators, function = kinds[step % len(kinds)][1]
        for number, (operator, operands, options) in enumerate(operators):
            names = {"x": old, "r": "r", **{str(i): f"{new}_{i}" for i in range(number)}}
            out = new if number == len(operators) - 1 else f"{new}_{number}"
            read = [names[each] for each in operands]
            nodes.append(helper.make_node(operator, read, [out], **options))
        value = function(value, residual)
    nodes.append(helper.make_node("Identity", [f"v{steps}"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, value.shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), inputs, value


def code_size(model, opt_level=3):
    """Characters of the text of all scheduled kernels of a model."""
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=opt_level):
        bound, _ = bind.bind_params(relay.to_relax(mod), params)
        scheduled = pipeline.scheduled(bound, TARGET)
    kernels = [f for f in scheduled.mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    return sum(len(func.script()) for func in kernels)


@pytest.mark.parametrize("place", PLACES)
def test_twice_as_many_activations_grow_the_code_no_more_than_linearly(place):
    shorter = len(MIXED) if place == "dense" else len(MIXED) // 2  # one place has every kind
    sizes = [code_size(chain(place, steps)[0]) for steps in (shorter, 2 * shorter)]
    assert 0 < sizes[0] < sizes[1] <= 2.5 * sizes[0], sizes


@pytest.mark.parametrize("place", ["dense", "depthwise"])
def test_a_chain_behind_an_anchor_computes_what_numpy_computes(place):
    model, inputs, want = chain(place, len(MIXED))
    onnx.checker.check_model(model)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.run(**inputs)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, 1e-4, 1e-5)
