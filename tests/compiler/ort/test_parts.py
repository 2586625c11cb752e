"""Splitting of models: random graphs of which any node may be one that Baton refuses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compiler.ort.parts import BATON, ONNXRUNTIME, split

onnxruntime = pytest.importorskip("onnxruntime")


@st.composite
def models(draw) -> onnx.ModelProto:
    """Chains and diamonds of Relu, Add and If, and hashes, which Baton refuses."""
    nodes, names = [], ["x"]
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["Relu", "Add", "foreign", "If", "Constant"]))
        one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        out = f"v{index}"
        if kind == "Constant":
            value = onnx.numpy_helper.from_array(np.full((2, 3), index, "float32"))
            nodes.append(helper.make_node("Constant", [], [out], value=value))
        elif kind == "If":
            inner = [
                helper.make_graph(
                    [helper.make_node(operator, [one], [f"{out}_{operator}"])],
                    operator,
                    [],
                    [helper.make_tensor_value_info(f"{out}_{operator}", TensorProto.FLOAT, [2, 3])],
                )
                for operator in ("Neg", "Abs")
            ]
            nodes.append(
                helper.make_node("If", ["c"], [out], then_branch=inner[0], else_branch=inner[1])
            )
        elif kind == "foreign":
            steps = [f"{out}_hash", f"{out}_number", f"{out}_small"]
            nodes += [
                helper.make_node("Cast", [one], [f"{out}_word"], to=TensorProto.INT32),
                helper.make_node("MurmurHash3", [f"{out}_word"], steps[:1], domain="com.microsoft"),
                helper.make_node("Cast", steps[:1], steps[1:2], to=TensorProto.FLOAT),
                helper.make_node("Mul", [steps[1], "tiny"], steps[2:]),
                helper.make_node("Add", [steps[2], other], [out]),
            ]
        else:
            nodes.append(helper.make_node(kind, [one] if kind == "Relu" else [one, other], [out]))
        names.append(out)
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=3, unique=True))
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in outputs],
        [onnx.numpy_helper.from_array(np.array(2.0**-31, "float32"), "tiny")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@settings(max_examples=30, deadline=None)
@given(model=models(), condition=st.booleans())
def test_parts_in_their_order_compute_the_model(model, condition):
    parts = split(model, {"x": (2, 3), "c": ()})
    feed = {"x": np.linspace(-3, 3, 6, dtype="float32").reshape(2, 3), "c": np.array(condition)}
    whole = onnxruntime.InferenceSession(model.SerializeToString())
    needed = {value.name for value in whole.get_inputs()}
    names = [value.name for value in model.graph.output]
    expected = whole.run(names, {name: feed[name] for name in needed})
    for part in parts:
        foreign = {node.op_type for node in part.model.graph.node if node.domain}
        assert foreign == ({"MurmurHash3"} if part.engine == ONNXRUNTIME else set())
        assert bool(part.reasons) == (part.engine != BATON)
        session = onnxruntime.InferenceSession(part.model.SerializeToString())
        made = session.run(part.outputs, {name: feed[name] for name in part.inputs})
        feed.update(zip(part.outputs, made))
    for name, value in zip(names, expected):
        np.testing.assert_allclose(feed[name], value, rtol=1e-6)
