"""An import stops at its limits instead of filling the memory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import ImportLimitError
from compiler.relay.frontend import ImportLimits

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]


def model(nodes, initializers=(), functions=(), shape=(4,)):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(np.array(array), name) for name, array in initializers]
    graph = helper.make_graph(nodes, "limits", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=8)


def doubling_functions(depth: int):
    """Functions that each call the one before twice."""
    callee, functions = ("", "Relu"), []
    for level in range(depth):
        nodes = [
            helper.make_node(callee[1], [source], [result], domain=callee[0])
            for source, result in (("a", "b"), ("b", "c"))
        ]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["c"], nodes, OPSETS))
        callee = ("own", f"f{level}")
    return functions


def test_exponential_function_expansion_is_an_error():
    functions = doubling_functions(40)
    node = helper.make_node("f39", ["x"], ["y"], domain="own")
    with pytest.raises(ImportLimitError, match=r"1000 nodes.*ImportLimits\.nodes"):
        relay.frontend.from_onnx(
            model([node], functions=functions), limits=ImportLimits(nodes=1000)
        )


def test_a_raised_limit_imports_the_model():
    proto = model(
        [helper.make_node("f3", ["x"], ["y"], domain="own")], functions=doubling_functions(4)
    )
    with pytest.raises(ImportLimitError):
        relay.frontend.from_onnx(proto, limits=ImportLimits(nodes=20))
    relay.frontend.from_onnx(proto, limits=ImportLimits(nodes=50))


def test_nested_loops_are_an_error_at_the_limit():
    def loop(level: int, source: str, result: str):
        """A loop over loops: 1,000 iterations at each level."""
        body = [helper.make_node("Identity", [f"go{level}"], [f"more{level}"])]
        inner = (f"state{level}", f"next{level}")
        body.append(
            loop(level - 1, *inner) if level else helper.make_node("Relu", inner[:1], inner[1:])
        )
        values = [
            helper.make_tensor_value_info(name, dtype, shape)
            for name, dtype, shape in (
                (f"i{level}", TensorProto.INT64, []),
                (f"go{level}", TensorProto.BOOL, []),
                (f"state{level}", TensorProto.FLOAT, [4]),
                (f"more{level}", TensorProto.BOOL, []),
                (f"next{level}", TensorProto.FLOAT, [4]),
            )
        ]
        graph = helper.make_graph(body, f"body{level}", values[:3], values[3:])
        return helper.make_node("Loop", ["count", "", source], [result], body=graph)

    proto = model([loop(3, "x", "y")], [("count", np.int64(1000))])
    with pytest.raises(ImportLimitError, match="loops are unrolled"):
        relay.frontend.from_onnx(proto, limits=ImportLimits(nodes=500))


def test_time_is_limited():
    proto = model([helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(ImportLimitError, match=r"ImportLimits\.seconds"):
        relay.frontend.from_onnx(proto, limits=ImportLimits(seconds=0.0))


def test_bytes_of_folded_constants_are_limited():
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["x", "zeros"], ["y"]),
    ]
    proto = model(nodes, [("shape", np.array([1000], "int64"))], shape=(1,))
    with pytest.raises(ImportLimitError, match=r"3999 bytes.*ImportLimits\.folded_bytes"):
        relay.frontend.from_onnx(proto, limits=ImportLimits(folded_bytes=3999))
    relay.frontend.from_onnx(proto, limits=ImportLimits(folded_bytes=4000))


@pytest.mark.parametrize(
    ("node", "initializers"),
    [
        (("ConstantOfShape", ["a"]), [("a", np.array([10**10], "int64"))]),
        (("Expand", ["a", "b"]), [("a", np.float32([1])), ("b", np.array([10**10], "int64"))]),
        (("Tile", ["a", "b"]), [("a", np.float32([1])), ("b", np.array([10**10], "int64"))]),
        (
            ("Expand", ["a", "b"]),
            [("a", np.zeros((10**5, 1), "float32")), ("b", np.array([1, 10**5], "int64"))],
        ),
        (
            ("Pow", ["a", "b"]),
            [("a", np.ones((10**5, 1), "float32")), ("b", np.ones(10**5, "float32"))],
        ),
        (
            ("Gather", ["a", "b"]),
            [("a", np.ones((1, 10**5), "float32")), ("b", np.zeros(10**5, "int64"))],
        ),
        (
            ("Pad", ["a", "b", "", "c"]),
            [
                ("a", np.float32([1])),
                ("b", np.array([0, 10**10], "int64")),
                ("c", np.array([0], "int64")),
            ],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_ten_billion_elements_are_not_folded(node, initializers):
    operator, inputs = node
    nodes = [
        helper.make_node(operator, inputs, ["large"]),
        helper.make_node("Add", ["x", "large"], ["y"]),
    ]
    mod, _ = relay.frontend.from_onnx(model(nodes, initializers, shape=(1,)))
    extents = [int(extent) for extent in mod["main"].body.ty.shape]
    assert np.prod(extents) >= 10**10


def test_padding_beyond_any_memory_is_an_error():
    weight = np.ones((4, 4, 3, 3), "float32")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[10**9] * 4)
    with pytest.raises(ImportLimitError, match="no machine can hold it"):
        relay.frontend.from_onnx(model([node], [("w", weight)], shape=(1, 4, 8, 8)))
