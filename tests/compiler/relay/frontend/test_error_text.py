"""Errors of ONNX nodes that TVM refuses: they name the node and speak of the model."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler import relay
from compiler.errors import UnsupportedOperatorError
from compiler.relay.frontend.error_text import plain


def model(node: onnx.NodeProto, data: tuple[int, ...], weight: tuple[int, ...]) -> onnx.ModelProto:
    """One node of `data` and a weight, by their names in it."""
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, data)],
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(np.ones(weight, "float32"), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("operator", "data", "weight", "said"),
    [
        ("MatMul", (2, 3), (4, 5), "Incompatible dimensions for matrix multiplication"),
        (
            "Conv",
            (1, 3, 8),
            (4, 3, 3, 3),
            r"weight tensor \(2\) does not match .* input tensor \(1\)",
        ),
        ("Add", (2, 3), (2, 4), "Incompatible dimensions"),
    ],
)
def test_the_node_is_named_plainly(operator, data, weight, said):
    node = helper.make_node(operator, ["data", "w"], ["y"], name="mine")
    with pytest.raises(UnsupportedOperatorError, match=said) as caught:
        relay.frontend.from_onnx(model(node, data, weight))
    message = str(caught.value)
    assert message.startswith(f"operator {operator} (domain ai.onnx, opset 17) of node 'mine'")
    assert "onnx.checker.check_model(model, full_check=True)" in message
    given = f"[float32[{', '.join(map(str, data))}], float32[{', '.join(map(str, weight))}]]"
    assert message.endswith(given)
    assert not any(notation in message for notation in ("ir.Op", "T.int64", "R.", "Metadata"))


def test_an_error_of_relays_own_names_the_node():
    node = helper.make_node("NonMaxSuppression", ["data", "w"], ["y"], name="mine")
    with pytest.raises(UnsupportedOperatorError, match="node 'mine'"):
        relay.frontend.from_onnx(model(node, (1, 3, 4), (2, 3)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Check failed: n.size() == 1 (2 vs. 1) : one stride", "one stride"),
        ("InternalError: Check failed: (!ty.IsMissing()) is false: no type", "no type"),
        ('ir.Op(name="relax.add", x=("a)"), n=2), of T.float32', "add, of float32"),
        ('R.Tensor((n, T.max(n, 2)), dtype="int8")', "int8[n, max(n, 2)]"),
        ('R.Tensor(dtype="int8", ndim=3), R.Tensor((), dtype="bool")', "int8 of 3 axes, bool[]"),
        ('R.Tensor(dtype="float32")', "float32 of unknown rank"),
        ("Check the failed sum (1 vs. 2)", "Check the failed sum (1 vs. 2)"),
    ],
)
def test_words(text, expected):
    assert plain(text) == expected
