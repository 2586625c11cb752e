"""Models of unusual form that onnxruntime accepts, split between Baton and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import ort, relay
from compiler.errors import FrontendError

onnxruntime = pytest.importorskip("onnxruntime")

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT32
X = np.array([1, -2, 3, 0.5, -1, 2], "float32")
FEED = {"x": X, "i": np.arange(6, dtype="int32")}
TINY = {"tiny": np.float32(2.0**-31)}
node, info = helper.make_node, helper.make_tensor_value_info


def hashed(source: str = "i", result: str = "a") -> list[onnx.NodeProto]:
    """Small floating-point numbers by a hash, which Baton can't compute."""
    return [
        node("MurmurHash3", [source], [f"{result}_hash"], domain="com.microsoft"),
        node("Cast", [f"{result}_hash"], [f"{result}_number"], to=FLOAT),
        node("Mul", [f"{result}_number", "tiny"], [result]),
    ]


def model(nodes, outputs=("y",), weights=TINY, inputs=(), size="n", opset=17, **graph_fields):
    """A model of the float input x and the integer input i, and of others."""
    given = {value.name for value in inputs}
    known = [v for v in (info("x", FLOAT, [size]), info("i", INT, [size])) if v.name not in given]
    read = {name for each in nodes for name in each.input}
    read.update(each for each in outputs if isinstance(each, str))
    graph = helper.make_graph(
        nodes,
        graph_fields.pop("name", "g"),
        [*(value for value in known if value.name in read), *inputs],
        [o if isinstance(o, onnx.ValueInfoProto) else info(o, FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
        sparse_initializer=graph_fields.pop("sparse", []),
    )
    domains = {"": opset, "com.microsoft": 1, "my": 1}
    opsets = [helper.make_opsetid(*each) for each in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **graph_fields)


def sparse(values, indices, shape) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, "float32"), "w"),
        numpy_helper.from_array(np.array(indices, "int64"), "w_indices"),
        shape,
    )


def graph(nodes, result) -> onnx.GraphProto:
    return helper.make_graph(nodes, "inner", [], [info(result, FLOAT, None)])


SUM = node("Add", ["x", "a"], ["y"])
BRANCHES = {
    "then_branch": graph([node("Add", ["a", "k"], ["t"])], "t"),
    "else_branch": graph([node("Sub", ["x", "a"], ["e"])], "e"),
}
FOREIGN_BRANCH = {
    "then_branch": graph(hashed("i", "t"), "t"),
    "else_branch": graph([node("Neg", ["k"], ["e"])], "e"),
}
CONDITION = info("c", TensorProto.BOOL, [])
FUNCTION = helper.make_function(
    "my", "Hash", ["p"], ["q"], [*hashed("p", "q")[:2], node("Neg", ["q_number"], ["q"])],
    [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
)  # fmt: skip
MODELS = {
    "an output listed twice": (model([*hashed(), SUM], ("y", "a", "y")), {}),
    "an output listed twice, unsplit": (model([node("Relu", ["x"], ["y"])], ("y", "y")), {}),
    "an input read twice": (model([*hashed(), node("Add", ["a", "a"], ["y"])]), {}),
    "nodes in reverse": (model([SUM, *hashed()[::-1]]), {}),
    "an output that is an input": (model(hashed(), ("a", "x")), {}),
    "an output that is a weight": (model(hashed(), ("a", "tiny")), {}),
    "a weight that is an input": (model([*hashed(), SUM], inputs=[info("tiny", FLOAT, [])]), {}),
    "odd names": (
        model(
            [*hashed("i", "a/b:0 'q\""), node("Relu", ["a/b:0 'q\""], ["é %s{};1"], name="n\n1")],
            ("é %s{};1",),
            name="g r/a:p\"h'é",
        ),
        {},
    ),
    "branches that read both engines' values": (
        model([*hashed(), node("Neg", ["x"], ["k"]), node("If", ["c"], ["y"], **BRANCHES)],
              inputs=[info("x", FLOAT, ["n"]), CONDITION]),
        {"c": np.array(False)},
    ),
    "an operator in a branch": (
        model([node("Exp", ["x"], ["k"]), node("If", ["c"], ["y"], **FOREIGN_BRANCH)],
              inputs=[info("i", INT, ["n"]), CONDITION]),
        {"c": np.array(True)},
    ),
    "an operator in a function": (
        model([node("Hash", ["i"], ["a"], domain="my"), SUM], functions=[FUNCTION]), {},
    ),
    "a result of unknown rank": (
        model([node("Reshape", ["x", "k"], ["t"]), node("LayerNormalization", ["t", "g"], ["y"])],
              weights={"g": X[:3]}, inputs=[info("k", TensorProto.INT64, [None])]),
        {"k": np.array([2, 3])},
    ),
    "a result of dynamic extent": (
        model([node("Greater", ["x", "zero"], ["c"]), node("Compress", ["x", "c"], ["t"]),
               node("Cast", ["t"], ["b"], to=TensorProto.FLOAT8E4M3FN),
               node("Cast", ["b"], ["y"], to=FLOAT)], weights={"zero": np.float32(0)}, opset=19),
        {},
    ),
    "a sequence between operators": (
        model([node("SplitToSequence", ["x"], ["s"], axis=0), *hashed(),
               node("SequenceAt", ["s", "first"], ["e"]), node("Add", ["e", "a"], ["y"])],
              weights=TINY | {"first": np.int64(0)}),
        {},
    ),
    "a sequence as output": (
        model([node("SplitToSequence", ["x"], ["s"], axis=0), node("Relu", ["x"], ["y"])],
              ("y", helper.make_tensor_sequence_value_info("s", FLOAT, None)), size=6),
        {},
    ),
    "a sequence as input": (
        model([node("SequenceAt", ["s", "one"], ["e"]), node("Relu", ["e"], ["y"])],
              weights={"one": np.int64(1)},
              inputs=[helper.make_tensor_sequence_value_info("s", FLOAT, None)]),
        {"s": [X, X[:2]]},
    ),
    "strings": (
        model([node("Equal", ["t", "u"], ["e"]), node("Cast", ["e"], ["a"], to=FLOAT), SUM],
              weights={"u": np.array(["b"], object)},
              inputs=[info("t", TensorProto.STRING, ["n"])], opset=19),
        {"t": np.array(list("abcabc"), object)},
    ),
    "operands left out": (
        model([*hashed(), node("Clip", ["x", "", "one"], ["k"]), node("Dropout", ["a"], ["d", ""]),
               node("Add", ["k", "d"], ["y"])], weights=TINY | {"one": np.float32(1)}),
        {},
    ),
    "a sparse weight": (
        model([node("Add", ["x", "w"], ["y"])], sparse=[sparse([2, 3], [0, 4], [6])], size=6), {},
    ),
    "sparse weights by coordinates, split": (
        model([*hashed(), node("Mul", ["a", "w"], ["y"])],
              sparse=[sparse([2, 3], [[0, 1], [1, 5]], [2, 6])], size=6),
        {},
    ),
    "a sparse constant": (
        model([node("Constant", [], ["a"], sparse_value=sparse([2, 3], [0, 4], [6])), SUM], size=6),
        {},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:onnxruntime runs")
@pytest.mark.parametrize("name", MODELS)
def test_runs_as_onnxruntime(name):
    proto, more = MODELS[name]
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    ours = ort.InferenceSession(proto.SerializeToString())
    described = [(each.name, each.shape, each.type) for each in theirs.get_inputs()]
    assert [(each.name, each.shape, each.type) for each in ours.get_inputs()] == described
    feed = {each: (FEED | more)[each] for each, _, _ in described}
    expected = theirs.run(None, feed)
    found = ours.run(None, feed)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_equal(np.shape(one), np.shape(other))
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (sparse([2, 3], [0, 6], [6]), "sparse tensor 'w'.*is damaged"),
        (sparse([2, 3], [0], [6]), "sparse tensor 'w'.*is damaged"),
        (sparse([2], [0], [1 << 40]), "the sparse tensor 'w'"),
    ],
)
def test_damaged_sparse_weights_are_rejected(tensor, message):
    proto = model([node("Add", ["x", "w"], ["y"])], sparse=[tensor], size=6)
    with pytest.raises(FrontendError, match=message):
        relay.frontend.from_onnx(proto)
