"""ONNX's If on a condition that only running tells: one branch runs, the other does nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import DivisionByZeroError, IndexRangeError
from compiler.runtime.graph_executor import GraphModule

NODE = helper.make_node


def _graph(name: str, nodes: list[Any], outputs: list[str]) -> onnx.GraphProto:
    results = [helper.make_empty_tensor_value_info(each) for each in outputs]
    return helper.make_graph(nodes, name, [], results)


def _model(random: np.random.Generator) -> onnx.ModelProto:
    """Two results of two branches, one of them with a choice of its own inside."""
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype("float32"), name)
        for name, shape in (("w", (8, 3, 3, 3)), ("v", (8, 3, 1, 1)))
    ]
    inner = {
        "then_branch": _graph("inner", [NODE("Neg", ["r"], ["n"])], ["n"]),
        "else_branch": _graph("other", [NODE("Exp", ["r"], ["e"])], ["e"]),
    }
    then = _graph(
        "then",
        [
            NODE("Conv", ["x", "w"], ["k"], pads=[1] * 4),
            NODE("Relu", ["k"], ["r"]),
            NODE("If", ["d"], ["t0"], **inner),
            NODE("Div", ["a", "b"], ["t1"]),
        ],
        ["t0", "t1"],
    )
    other = _graph(
        "else", [NODE("Conv", ["x", "v"], ["e0"]), NODE("Gather", ["a", "b"], ["e1"])], ["e0", "e1"]
    )
    nodes = [
        NODE("If", ["c"], ["y", "z"], then_branch=then, else_branch=other),
        NODE("Sigmoid", ["y"], ["s"]),
    ]
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("d", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6]),
        helper.make_tensor_value_info("a", TensorProto.INT32, [4]),
        helper.make_tensor_value_info("b", TensorProto.INT32, [4]),
    ]
    outputs = [helper.make_empty_tensor_value_info(each) for each in ("s", "z")]
    graph = helper.make_graph(nodes, "branches", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize("level", [0, 3])
def test_only_the_branch_that_is_taken_runs(level: int) -> None:
    random = np.random.default_rng(0)
    model = _model(random)
    mod, params = relay.frontend.from_onnx(model)
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(mod, "llvm", params=params)
    module = GraphModule(library["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    values: dict[str, np.ndarray] = {
        "x": random.normal(size=(1, 3, 6, 6)).astype("float32"),
        "a": np.array([3, -4, 5, 6], "int32"),
    }
    far, zeros = np.full(4, 9, "int32"), np.zeros(4, "int32")
    # 9 is not a place of a and 0 no divisor: each branch is taken with what the other can't take.
    for c, d, b in [(True, True, far), (True, False, far), (False, True, zeros), (True, True, far)]:
        given = {**values, "c": np.array(c), "d": np.array(d), "b": b}
        module.run(**given)
        for index, expected in enumerate(session.run(None, given)):
            own = module.get_output(index).numpy()
            np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(DivisionByZeroError):
        module.run(**{**values, "c": np.array(True), "d": np.array(True), "b": zeros})
    with pytest.raises(IndexRangeError):
        module.run(**{**values, "c": np.array(False), "d": np.array(True), "b": far})


def test_an_if_of_a_relay_function_runs_one_branch_too() -> None:
    c, d = (relay.var(name, shape=(), dtype="bool") for name in "cd")
    a, b = (relay.var(name, shape=(4,), dtype="int32") for name in "ab")
    inner = relay.If(d, relay.multiply(a, a), relay.negative(a))
    chosen = relay.If(c, relay.divide(a, b), relay.add(inner, b))
    function = relay.Function([c, d, a, b], relay.multiply(chosen, relay.const(2)))
    library = relay.build(tvm.IRModule.from_expr(function), "llvm")
    module = GraphModule(library["default"](tvm.cpu()))
    values = {"a": np.arange(4, dtype="int32"), "b": np.zeros(4, "int32")}
    for d_value, expected in ((True, values["a"] ** 2), (False, -values["a"])):
        module.run(c=np.array(False), d=np.array(d_value), **values)
        np.testing.assert_array_equal(module.get_output(0).numpy(), expected * 2)
    module.run(c=np.array(True), d=np.array(True), a=values["a"], b=np.full(4, 2, "int32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), values["a"] // 2 * 2)


def test_a_branch_reads_extents_that_running_tells_with_known_ones(runs_as_onnxruntime):
    text = """<ir_version: 10, opset_import: ["": 17]>
    test (float[2,1,2,2] x, int64[2] s, bool c) => (float[a,b,d,e,f] y) {
        w = Expand(x, s)
        y = If(c) <then_branch = g() => (float[a,b,d,e,f] p) { p = Sub(w, k) },
                   else_branch = h() => (float[a,b,d,e,f] q) { q = Sub(k, k) }>
    }"""
    feeds = {"x": np.ones((2, 1, 2, 2), "float32"), "s": np.array([1, 1]), "c": np.array(True)}
    k = np.arange(32, dtype="float32").reshape(2, 2, 2, 2, 2)
    runs_as_onnxruntime(text, {"k": k}, feeds, opt_level=0)
