"""Expressions of imported models say which node they came from."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from compiler import relay
from compiler.ir.rewrite import expressions_in


def spans(function, kind):
    """Name of the operator, variable or dtype to the source's name."""
    return {
        str(expr.op.name if kind is relax.Call else getattr(expr, "name", expr.ty.dtype)): str(
            expr.span.source_name.name
        )
        for expr in expressions_in(function, kind)
        if expr.span is not None
    }


def two_nodes(rng):
    """A convolution with a name, and a relu without one."""
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype("float32"),
        "b": rng.standard_normal(4).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[3, 3], name="first"),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, (1, 4, 6, 6))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph)


def test_calls_name_their_node(rng):
    mod, _ = relay.frontend.from_onnx(two_nodes(rng))
    assert spans(mod["main"], relax.Call) == {
        "nn.conv2d": "first",
        "nn.bias_add": "first",
        "nn.relu": "Relu_0",
    }
    relay.SpanCheck()(mod)


def test_operands_name_the_first_node_that_reads_them(rng):
    mod, _ = relay.frontend.from_onnx(two_nodes(rng), freeze_params=False)
    assert {str(each.name): str(each.span.source_name.name) for each in mod["main"].params} == {
        "x": "first.x",
        "w": "first.w",
        "b": "first.b",
    }
    frozen, _ = relay.frontend.from_onnx(two_nodes(rng))
    constants = expressions_in(frozen["main"], type(relax.const(0.0)))
    assert sorted(str(each.span.source_name.name) for each in constants) == ["first.b", "first.w"]


def test_what_a_pass_makes_of_calls_keeps_their_node():
    """Five nodes become the form of a GELU that importers give, whose result the last one is."""
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"], name="last"),
    ]
    numbers = {"root": np.sqrt(2.0), "one": 1.0, "half": 0.5}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 8))],
        [numpy_helper.from_array(np.array(v, "float32"), n) for n, v in numbers.items()],
    )
    mod, _ = relay.frontend.from_onnx(helper.make_model(graph))
    calls = expressions_in(mod["main"], relax.Call)
    assert {str(call.span.source_name.name) for call in calls} == {"last"}


def test_branches_name_their_own_nodes():
    inner = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], ["r"], name=f"my_{kind}")],
            kind,
            [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT, (2,))],
        )
        for kind in ("Exp", "Neg")
    ]
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=inner[0], else_branch=inner[1])],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))],
    )
    mod, _ = relay.frontend.from_onnx(helper.make_model(graph))
    found = spans(mod["main"], relax.Call)
    assert (found["exp"], found["negative"]) == ("my_Exp", "my_Neg")


def test_torchs_operators_are_named_as_in_the_graph():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    script = torch.jit.trace(model.eval(), torch.zeros(3, 8))
    mod, _ = relay.frontend.from_pytorch(script, [("data", (3, 8))])
    assert spans(mod["main"], relax.Call)["nn.relu"] == "aten::relu_0"
    assert {str(each.name): str(each.span.source_name.name) for each in mod["main"].params} == {
        "data": "aten::linear_0.data",
        "0.weight": "aten::linear_0.weight",
        "0.bias": "aten::linear_0.bias",
        "2.weight": "aten::linear_1.weight",
        "2.bias": "aten::linear_1.bias",
    }
