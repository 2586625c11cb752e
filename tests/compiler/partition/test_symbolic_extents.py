"""Partitioning of models whose extents only running tells: what backends see, and what runs."""

from __future__ import annotations

import importlib.util
import itertools
import json
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import InputError
from compiler.partition import Strategy, partition, register, subgraphs
from compiler.runtime import graph_executor
from scripts.fuzz.networks.families import draw

NODE, INFO = helper.make_node, helper.make_tensor_value_info
WEIGHT = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
NUMBERS = itertools.count()


def model() -> Any:
    """Rows twice as long as an input's, and an input's without the first; then exp and tanh."""
    nodes = [
        NODE("Relu", ["x"], ["a"]),
        NODE("MatMul", ["a", "w"], ["b"]),
        NODE("Concat", ["b", "a"], ["c"], axis=1),
        NODE("Exp", ["c"], ["y"]),
        NODE("Slice", ["x", "one", "end", "one"], ["d"]),
        NODE("Tanh", ["d"], ["z"]),
    ]
    weights = {"w": WEIGHT, "one": np.array([1]), "end": np.array([1000])}
    graph = helper.make_graph(
        nodes,
        "g",
        [INFO("x", TensorProto.FLOAT, ["batch", "seq", 4])],
        [INFO(name, TensorProto.FLOAT, [None] * 3) for name in "yz"],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def claiming(*operators: str, seen: list[Any] | None = None, **options: Any) -> str:
    """The name of a new partitioner; accepted graphs are put into `seen`."""

    def claim(graph: str, ids: list[int], _: Any) -> None:
        for index, node in enumerate(json.loads(graph)["nodes"]):
            ids[index] = -1 if node["op"] in operators else -2

    def accept(graph: str, *_: Any) -> bool:
        if seen is not None:
            seen.append(json.loads(graph))
        return True

    name = f"symbolic_{next(NUMBERS)}"
    register(name, Strategy("s", claim, accept), **options)
    return name


def check(mod: tvm.IRModule, params: Any) -> Any:
    """Build, run with several extents, and return the library."""
    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for batch, rows in ((2, 3), (1, 7), (0, 2), (3, 1)):
        x = np.random.default_rng(rows).standard_normal((batch, rows, 4)).astype("float32")
        module.run(x=x)
        y, z = (module.get_output(index).numpy() for index in range(2))
        a = np.maximum(x, 0)
        np.testing.assert_allclose(y, np.exp(np.concatenate([a @ WEIGHT, a], 1)), rtol=1e-4)
        np.testing.assert_allclose(z, np.tanh(x[:, 1:]), rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="'x' has the extent 5 along axis 0, but 'batch' is at"):
        module.run(x=np.zeros((5, 1, 4), "float32"))
    return library


@pytest.fixture
def imported() -> tuple[tvm.IRModule, Any]:
    mod, params = relay.frontend.from_onnx(model())
    return relay.with_bounds(mod, {"batch": 4, "seq": 64}), params


def test_accepting_backends_see_symbols_and_bounds(imported):
    mod, params = imported
    seen: list[Any] = []
    mod = partition(mod, claiming("exp", "tanh", seen=seen), params)
    assert [graph["bounds"] for graph in seen] == [{"batch": 4, "seq": 64}] * 2
    shapes = {graph["nodes"][-1]["op"]: graph["nodes"][-1]["attrs"]["shape"] for graph in seen}
    assert shapes["exp"] == "[batch, seq * 2, 4]"
    assert "seq_1" not in shapes["tanh"]
    info = check(mod, params).partition_info()
    (claimed,) = (each for each in info.values() if each["operators"] == ["exp"])
    tensor = {"name": "", "shape": ["batch", "seq * 2", 4], "dtype": "float32"}
    assert claimed["inputs"] == [tensor]
    assert claimed["outputs"] == [{**tensor, "name": "output0"}]


def test_a_backend_compiles_for_all_extents(imported):
    mod, params = imported
    functions = {"exp": np.exp, "tanh": np.tanh}

    def compile_part(subgraph: tvm.IRModule, _: Any, __: Any) -> Any:
        ((_, function),) = subgraph.functions_items()
        (tensor,) = function.params  # and nothing that says what seq is
        assert tensor.ty.ndim == 3
        (binding,) = function.body.blocks[0].bindings
        return functions[binding.value.op.name.removeprefix("relax.")]

    mod = partition(mod, claiming("exp", "tanh", compile=compile_part), params)
    assert {part.operators for part in subgraphs(mod)} == {("exp",), ("tanh",)}
    check(mod, params)


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
def test_onnxruntime_runs_parts_of_any_extents(imported):
    mod, params = imported
    mod = partition(mod, "onnxruntime", params)
    info = check(mod, params).partition_info()
    assert {each["runtime"] for each in info.values()} == {"onnxruntime"}
    assert sum(len(each["operators"]) for each in info.values()) == 5


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
def test_a_tensor_may_be_used_for_its_size_alone_after_inlining():
    net = draw(780, 59)  # resized to sizes that it computes, between subgraphs
    mod, params = relay.frontend.from_onnx(net.model())
    done = partition(mod, "onnxruntime", params)
    assert len(subgraphs(done)) > 3
    plain, mixed = (relay.build(each, "llvm", params=params).session() for each in (mod, done))
    for batch in (1, 3):
        feed = net.feed(dict.fromkeys(net.ordinary, batch), np.random.default_rng(batch))
        for expected, found in zip(plain.run(feed).values(), mixed.run(feed).values()):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_limit_of_bytes_counts_the_largest_extents(imported):
    mod, params = imported
    name = claiming("nn.relu")
    bytes_of_relu = 2 * 4 * 64 * 4 * 4
    assert len(subgraphs(partition(mod, name, params, max_bytes=bytes_of_relu))) == 1
    assert subgraphs(partition(mod, name, params, max_bytes=bytes_of_relu - 1)) == []


def test_open_extents_of_relay_are_symbols_of_their_own():
    x, y = (relay.var(name, shape=(relay.Any(), 4)) for name in "xy")
    body = relay.Tuple([relay.exp(relay.nn.relu(x)), relay.exp(y)])
    seen: list[Any] = []
    mod = tvm.IRModule.from_expr(relay.Function([x, y], body))
    mod = partition(mod, claiming("exp", seen=seen))
    shapes = {graph["nodes"][0]["attrs"]["shape"] for graph in seen}
    assert shapes == {"[any, 4]", "[any_1, 4]"}
    module = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    for rows in ((3, 2), (0, 1)):
        data = {name: np.ones((count, 4), "float32") for name, count in zip("xy", rows)}
        module.run(**data)
        for index, value in enumerate(data.values()):
            np.testing.assert_allclose(module.get_output(index).numpy(), np.exp(value), rtol=1e-6)
