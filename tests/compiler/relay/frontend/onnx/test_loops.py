"""ONNX's Loop and Scan whose rounds only running tells, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import UnsupportedOperatorError
from compiler.runtime import load_module
from compiler.runtime.graph_executor import GraphModule

NODE = helper.make_node
FLOAT, BOOL, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
VALUE = helper.make_tensor_value_info
RANDOM = np.random.default_rng(0)


def _body(nodes: list[Any], inputs: list[Any], outputs: Sequence[str]) -> onnx.GraphProto:
    kinds = {name: BOOL if name.startswith("go") else FLOAT for name in outputs}
    results = [VALUE(name, kinds[name], None) for name in outputs]
    return helper.make_graph(nodes, "body", inputs, results)


ROUND = [VALUE("i", INT, []), VALUE("c", BOOL, [])]


def _model(
    nodes: list[Any], inputs: list[Any], outputs: dict[str, int], weights: dict[str, Any]
) -> onnx.ModelProto:
    results = [VALUE(name, FLOAT, [None] * rank) for name, rank in outputs.items()]
    initializers = [numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items()]
    graph = helper.make_graph(nodes, "loops", inputs, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _compare(model: onnx.ModelProto, calls: Sequence[dict[str, Any]]) -> GraphModule:
    mod, params = relay.frontend.from_onnx(model)
    module = GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for call in calls:
        given = {name: np.asarray(value) for name, value in call.items()}
        module.run(**given)
        for index, expected in enumerate(session.run(None, given)):
            own = module.get_output(index).numpy()
            assert own.shape == expected.shape
            np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)
    return module


def _floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def test_a_count_of_rounds_with_stacked_results_and_weights_of_the_body() -> None:
    body = _body(
        [
            NODE("MatMul", ["s", "w"], ["p"]),
            NODE("Add", ["p", "x"], ["q"]),
            NODE("Tanh", ["q"], ["t"]),
            NODE("Identity", ["c"], ["go"]),
        ],
        [*ROUND, VALUE("s", FLOAT, [None, 16])],
        ["go", "t", "t"],
    )
    inputs = [VALUE("n", INT, []), VALUE("s0", FLOAT, ["b", 16]), VALUE("x", FLOAT, ["b", 16])]
    nodes = [NODE("Loop", ["n", "", "s0"], ["y", "ys"], body=body)]
    model = _model(nodes, inputs, {"y": 2, "ys": 3}, {"w": _floats(16, 16) / 8})
    counts = [(1, 2), (9, 1), (130, 3)]  # within the first level, and on the levels above it
    _compare(model, [{"n": n, "s0": _floats(b, 16), "x": _floats(b, 16)} for n, b in counts])
    mod, params = relay.frontend.from_onnx(model)
    library = relay.build(mod, "llvm", params=params)
    (weight,) = library.metadata.params
    assert np.prod(weight.shape) == 16 * 16
    module = GraphModule(library["default"](tvm.cpu()))
    start = _floats(2, 16)
    module.run(n=np.array(0), s0=start, x=start)
    np.testing.assert_array_equal(module.get_output(0).numpy(), start)
    assert module.get_output(1).numpy().shape == (0, 2, 16)


def test_a_condition_ends_the_loop_and_its_state_grows() -> None:
    body = _body(
        [
            NODE("Add", ["i", "one"], ["k"]),
            NODE("Cast", ["k"], ["f"], to=FLOAT),
            NODE("Unsqueeze", ["f", "zero"], ["u"]),
            NODE("Concat", ["s", "u"], ["t"], axis=0),
            NODE("ReduceSum", ["t"], ["sum"], keepdims=0),
            NODE("Less", ["sum", "limit"], ["go"]),
        ],
        [*ROUND, VALUE("s", FLOAT, [None])],
        ["go", "t", "sum"],
    )
    nodes = [NODE("Loop", ["", "c0", "s0"], ["y", "ys"], body=body)]
    inputs = [VALUE("c0", BOOL, []), VALUE("s0", FLOAT, ["b"]), VALUE("limit", FLOAT, [])]
    model = _model(nodes, inputs, {"y": 1, "ys": 1}, {"one": 1, "zero": [0]})
    ones = np.ones(2, "float32")
    limits = [np.float32(limit) for limit in (1, 10, 1000)]
    calls = [{"c0": True, "s0": ones, "limit": limit} for limit in limits]
    _compare(model, [*calls, {"c0": False, "s0": ones, "limit": limits[0]}])


def test_a_loop_in_a_loop_with_a_branch() -> None:
    branches = {
        "then_branch": _body([NODE("Neg", ["a"], ["yes"])], [], ["yes"]),
        "else_branch": _body([NODE("Add", ["a", "x"], ["no"])], [], ["no"]),
    }
    inner = _body(
        [
            NODE("Equal", ["i2", "i"], ["same"]),
            NODE("If", ["same"], ["a2"], **branches),
            NODE("Identity", ["c2"], ["go"]),
        ],
        [VALUE("i2", INT, []), VALUE("c2", BOOL, []), VALUE("a", FLOAT, [None, 2])],
        ["go", "a2"],
    )
    outer = _body(
        [
            NODE("Loop", ["n", "", "s"], ["t"], body=inner),
            NODE("Mul", ["t", "half"], ["u"]),
            NODE("Identity", ["c"], ["go"]),
        ],
        [*ROUND, VALUE("s", FLOAT, [None, 2])],
        ["go", "u", "t"],
    )
    nodes = [NODE("Loop", ["n", "", "x"], ["y", "ys"], body=outer)]
    inputs = [VALUE("n", INT, [1]), VALUE("x", FLOAT, ["b", 2])]
    model = _model(nodes, inputs, {"y": 2, "ys": 3}, {"half": np.float32(0.5)})
    _compare(model, [{"n": [n], "x": _floats(b, 2)} for n, b in ((1, 2), (3, 1), (10, 3))])


def test_branches_of_different_extents() -> None:
    branches = {
        "then_branch": _body([NODE("Concat", ["x", "x"], ["yes"], axis=0)], [], ["yes"]),
        "else_branch": _body([NODE("Neg", ["x"], ["no"])], [], ["no"]),
    }
    nodes = [NODE("If", ["c0"], ["a"], **branches), NODE("Mul", ["a", "a"], ["y"])]
    inputs = [VALUE("c0", BOOL, []), VALUE("x", FLOAT, ["b", 2])]
    model = _model(nodes, inputs, {"y": 2}, {})
    _compare(model, [{"c0": taken, "x": _floats(3, 2)} for taken in (True, False)])


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_over_a_sequence_of_any_length(backward: int) -> None:
    body = _body(
        [NODE("Add", ["s", "e"], ["t"]), NODE("Mul", ["t", "e"], ["o"])],
        [VALUE("s", FLOAT, [None, 4]), VALUE("e", FLOAT, [None, 4])],
        ["t", "o"],
    )
    attributes: dict[str, Any] = {
        "num_scan_inputs": 1,
        "scan_input_axes": [1],
        "scan_input_directions": [backward],
        "scan_output_axes": [-1],
        "scan_output_directions": [1 - backward],
    }
    nodes = [NODE("Scan", ["s0", "x"], ["y", "ys"], body=body, **attributes)]
    inputs = [VALUE("s0", FLOAT, ["b", 4]), VALUE("x", FLOAT, ["b", "seq", 4])]
    model = _model(nodes, inputs, {"y": 2, "ys": 3}, {})
    sizes = [(1, 1), (2, 5), (1, 20)]
    _compare(model, [{"s0": _floats(b, 4), "x": _floats(b, n, 4)} for b, n in sizes])


def test_a_state_that_changes_its_rank_is_refused() -> None:
    body = _body(
        [NODE("Unsqueeze", ["s", "zero"], ["t"]), NODE("Identity", ["c"], ["go"])],
        [*ROUND, VALUE("s", FLOAT, None)],
        ["go", "t"],
    )
    nodes = [NODE("Loop", ["n", "", "x"], ["y"], body=body)]
    inputs = [VALUE("n", INT, []), VALUE("x", FLOAT, [2])]
    model = _model(nodes, inputs, {"y": 1}, {"zero": [0]})
    with pytest.raises(UnsupportedOperatorError, match="a round makes"):
        relay.frontend.from_onnx(model)


def test_an_executor_runs_a_loop() -> None:
    body = _body(
        [NODE("Add", ["s", "s"], ["t"]), NODE("Identity", ["c"], ["go"])],
        [*ROUND, VALUE("s", FLOAT, [2])],
        ["go", "t"],
    )
    nodes = [NODE("Loop", ["n", "", "x"], ["y"], body=body)]
    model = _model(nodes, [VALUE("n", INT, []), VALUE("x", FLOAT, [2])], {"y": 1}, {})
    mod, params = relay.frontend.from_onnx(model)
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm", params).evaluate()
    x = _floats(2)
    for n in (0, 3):
        np.testing.assert_allclose(run(np.array(n), x).numpy(), x * 2**n)


def test_counted_rounds_write_their_slices_into_tensors_for_all(tmp_path: Path) -> None:
    """Slices of several ranks, two of one shape, and those of a loop inside of another one."""
    inner = _body(
        [
            NODE("Identity", ["d"], ["go_on"]),
            NODE("Add", ["u", "x"], ["v"]),
            NODE("Exp", ["v"], ["e"]),
            NODE("ReduceSum", ["v"], ["total"], keepdims=0),
        ],
        [VALUE("j", INT, []), VALUE("d", BOOL, []), VALUE("u", FLOAT, [3])],
        ["go_on", "v", "v", "e", "total"],
    )
    nodes = [NODE("Loop", ["n", "", "x"], ["last", "vs", "es", "totals"], body=inner)]
    outputs = {"last": 1, "vs": 2, "es": 2, "totals": 1}
    inputs = [VALUE("n", INT, []), VALUE("x", FLOAT, [3])]
    x = _floats(3) / 100
    calls = [{"n": count, "x": x} for count in (9, 0, 1, 200, -1)]
    model = _model(nodes, inputs, outputs, {})
    module = _compare(model, calls)
    mod, params = relay.frontend.from_onnx(model)
    relay.build(mod, "llvm", params=params).export_library(tmp_path / "loop.so")
    loaded = load_module(tmp_path / "loop.so").session()  # its weights are tensors of no elements
    np.testing.assert_allclose(loaded.run({"n": 2, "x": x})["vs"], [2 * x, 3 * x], rtol=1e-5)
    whole = module.get_output(1)
    module.run(n=np.array(2), x=x)
    assert whole.numpy().shape == (0, 3) and module.get_output(1).numpy().shape == (2, 3)

    outer = _body(
        [
            NODE("Identity", ["c"], ["go"]),
            NODE("Add", ["h", "x"], ["h1"]),
            NODE("Loop", ["m", "", "h1"], ["h2", "rows", "es", "totals"], body=inner),
            NODE("ReduceMax", ["rows"], ["most"], axes=[0], keepdims=0),
        ],
        [*ROUND, VALUE("h", FLOAT, [3])],
        ["go", "h2", "most"],
    )
    nodes = [NODE("Loop", ["n", "", "x"], ["last", "all"], body=outer)]
    inputs = [VALUE("n", INT, []), VALUE("m", INT, []), VALUE("x", FLOAT, [3])]
    calls = [{"n": count, "m": 3, "x": x} for count in (2, 9)]
    _compare(_model(nodes, inputs, {"last": 1, "all": 2}, {}), calls)
