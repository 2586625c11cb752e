"""Partitioning of imported models by backends that know Relay's names, or Relax's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from compiler import relay
from compiler.mxnet.symbol import Symbol
from compiler.partition import (
    Selector,
    Strategy,
    partition,
    partition_with_report,
    register,
    subgraphs,
)
from compiler.runtime.graph_executor import GraphModule

from .conftest import claim, execute, random

X = random((1, 3, 6, 6))
KERNEL, CONV_BIAS = random((4, 3, 3, 3), 1), random((4,), 2)
WEIGHT, BIAS = random((5, 4), 3), random((5,), 4)


def onnx_model() -> onnx.ModelProto:
    """Conv, Relu, GlobalAveragePool, Flatten, Gemm."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "conv_bias"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "weight", "bias"], ["y"], transB=1),
    ]
    values = {"kernel": KERNEL, "conv_bias": CONV_BIAS, "weight": WEIGHT, "bias": BIAS}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5))],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def from_onnx() -> tuple[tvm.IRModule, dict[str, Any]]:
    return relay.frontend.from_onnx(onnx_model(), freeze_params=False)


def from_mxnet() -> tuple[tvm.IRModule, dict[str, Any]]:
    """The same network as a symbol."""
    symbol = Symbol.loads(
        json.dumps(
            {
                "nodes": [
                    {"op": "null", "name": "x", "inputs": []},
                    {"op": "null", "name": "kernel", "inputs": []},
                    {"op": "null", "name": "conv_bias", "inputs": []},
                    {
                        "op": "Convolution",
                        "name": "a",
                        "attrs": {"kernel": "(3, 3)", "num_filter": "4"},
                        "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
                    },
                    {
                        "op": "Activation",
                        "name": "b",
                        "attrs": {"act_type": "relu"},
                        "inputs": [[3, 0, 0]],
                    },
                    {
                        "op": "Pooling",
                        "name": "c",
                        "attrs": {"global_pool": "True", "pool_type": "avg", "kernel": "(1, 1)"},
                        "inputs": [[4, 0, 0]],
                    },
                    {"op": "null", "name": "weight", "inputs": []},
                    {"op": "null", "name": "bias", "inputs": []},
                    {
                        "op": "FullyConnected",
                        "name": "y",
                        "attrs": {"num_hidden": "5"},
                        "inputs": [[5, 0, 0], [6, 0, 0], [7, 0, 0]],
                    },
                ],
                "arg_nodes": [0, 1, 2, 6, 7],
                "heads": [[8, 0, 0]],
            }
        )
    )
    values = {"kernel": KERNEL, "conv_bias": CONV_BIAS, "weight": WEIGHT, "bias": BIAS}
    return relay.frontend.from_mxnet(symbol, {"x": X.shape}, "float32", values)


def check(mod: tvm.IRModule, params: dict[str, Any]) -> Any:
    """Build and run; the library."""
    lib = relay.build(mod, "llvm", params=params)
    module = GraphModule(lib["default"](tvm.cpu()))
    module.run(x=X)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected(), rtol=1e-4)
    return lib


def expected() -> np.ndarray:
    patches = np.lib.stride_tricks.sliding_window_view(X[0], (3, 3), axis=(1, 2))
    conv = np.einsum("cijkl,ockl->oij", patches, KERNEL) + CONV_BIAS[:, None, None]
    return np.maximum(conv, 0).mean(axis=(1, 2))[None] @ WEIGHT.T + BIAS


@pytest.mark.parametrize("importer", [from_onnx, from_mxnet])
@pytest.mark.parametrize(
    "names",
    [
        ("nn.conv2d", "nn.bias_add", "nn.relu", "nn.dense"),
        ("nn.conv2d", "add", "nn.relu", "matmul"),
    ],
    ids=["relay", "relax"],
)
def test_a_backend_claims_operators_of_an_imported_model_in_either_spelling(
    importer: Callable[[], Any], names: tuple[str, ...], claiming: Callable[..., str]
) -> None:
    mod, params = importer()
    part = partition(mod, claiming(*names), params)
    found = sorted(info.operators for info in subgraphs(part))
    assert found == [("nn.conv2d", "nn.bias_add", "nn.relu"), ("nn.dense", "nn.bias_add")]
    lib = check(part, params)
    assert sorted(tuple(e["operators"]) for e in lib.partition_info().values()) == found
    assert sum(entry["flops"] for entry in lib.partition_info().values()) > 2 * 4 * 4 * 4 * 27
    assert any(kernel.operators[0] == "nn.conv2d" for kernel in lib.report.kernels)


def test_callbacks_see_relays_operators_attributes_and_operands(
    claiming: Callable[..., str],
) -> None:
    seen: list[dict[str, Any]] = []

    def accept(graph_json: str, number: int, options: Any, attrs: Any, args: Any, aux: Any) -> bool:
        seen.extend(json.loads(graph_json)["nodes"])
        assert set(args) == {"kernel", "conv_bias", "weight", "bias"}
        return True

    mod, params = from_onnx()
    report = partition_with_report(mod, claiming("nn.conv2d", accept_subgraph=accept), params)
    (conv,) = [node for node in seen if node["op"] == "nn.conv2d"]
    assert conv["attrs"]["channels"] == "4" and conv["attrs"]["kernel_size"] == "[3, 3]"
    assert [node.get("attrs", {}).get("argName") for node in seen[:2]] == ["x", "kernel"]
    operators = {node.op for node in report.graph.nodes} - {"null"}
    assert {"nn.conv2d", "nn.bias_add", "nn.global_avg_pool2d", "nn.dense"} <= operators
    assert not operators & {"matmul", "permute_dims"}


class _Products(Selector):
    def __init__(self, graph_json: str, name: str) -> None:
        self._ops = [node["op"] for node in json.loads(graph_json)["nodes"]]
        self._name = name

    def select(self, node: int) -> bool:
        return self._ops[node] == self._name

    def select_output(self, node: int, output: int) -> bool:
        return self._ops[output] in ("add", "nn.bias_add")


@pytest.mark.parametrize("name", ["nn.dense", "matmul"])
def test_a_selector_grows_subgraphs_in_either_spelling(name: str) -> None:
    register("growing", Strategy("s", selector=lambda text, _: _Products(text, name)))
    mod, params = from_onnx()
    (info,) = subgraphs(partition(mod, "growing", params))
    assert info.operators[-2:] == ("nn.dense", "nn.bias_add")


def test_a_name_of_relax_stands_for_all_relay_operators_that_it_is_raised_to() -> None:
    register("products", Strategy("s", claim("matmul")))
    a, b = relay.var("a", shape=(2, 3, 4)), relay.var("b", shape=(2, 5, 4))
    c, w = relay.var("c", shape=(3, 4)), relay.var("w", shape=(5, 4))
    both = relay.Tuple([relay.nn.batch_matmul(a, b), relay.nn.dense(c, w)])
    part = partition(tvm.IRModule.from_expr(relay.Function([a, b, c, w], both)), "products")
    last = sorted(info.operators[-1] for info in subgraphs(part))
    assert last == ["nn.batch_matmul", "nn.dense"]


def test_compile_sees_relays_operators_and_to_relax_gives_the_others(
    claiming: Callable[..., str],
) -> None:
    seen: list[list[str]] = []

    def names(function: relax.Function) -> list[str]:
        values = [b.value for block in function.body.blocks for b in block.bindings]
        return [str(value.op.name) for value in values if isinstance(value, tvm.ir.Call)]

    def compile(subgraph: tvm.IRModule, params: Any, options: Any) -> Any:
        ((gvar, function),) = subgraph.functions_items()
        seen.append(names(function))
        seen.append(names(relay.to_relax(subgraph)[gvar.name_hint]))
        return lambda x: x @ params["weight"].T

    register("own", Strategy("s", claim("nn.dense")), compile=compile)
    mod, params = from_onnx()
    part = partition(mod, "own", params)
    lib = check(part, params)
    assert seen == [["nn.dense"], ["relax.permute_dims", "relax.matmul"]]
    (entry,) = lib.partition_info().values()
    assert (entry["operators"], entry["flops"]) == (["nn.dense"], 2 * 4 * 5)
    seen.clear()
    check(relay.to_relax(part), params)
    assert seen[0][-1] == "nn.dense"


def test_to_relax_and_from_relax_keep_the_subgraphs_of_a_partitioned_module(
    claiming: Callable[..., str],
) -> None:
    mod, params = from_onnx()
    part = partition(mod, claiming("nn.conv2d", "nn.dense", "nn.bias_add"), params)
    plain = relay.to_relax(part)
    assert "R.matmul" in plain.script()
    operators = [info.operators for info in subgraphs(part)]
    assert [info.operators for info in subgraphs(plain)] == operators
    assert [info.operators for info in subgraphs(relay.from_relax(plain))] == operators
    weights = (params[name].numpy() for name in ("kernel", "conv_bias", "weight", "bias"))
    np.testing.assert_allclose(execute(plain, X, *weights)[0], expected(), rtol=1e-4)


def test_a_module_of_both_vocabularies_and_local_functions_is_partitioned(
    claiming: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.relay.transform.base._NAMED", set())  # each is named once
    x = relay.var("x", shape=(2, 3))
    w = relay.var("w", shape=(4, 3))
    made = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), relay.const(np.ones(4, "f4"))))
    whole = relay.Function([x, w], relax.op.exp(made))
    mod = tvm.IRModule.from_expr(whole)
    pattern = relay.dataflow_pattern.is_op("nn.relu")(relay.dataflow_pattern.wildcard())
    with pytest.warns(UserWarning, match="exp"):
        mod = relay.transform.MergeComposite([("other.relu", pattern)])(mod)
    part = partition(mod, claiming("nn.dense", "nn.bias_add", "nn.relu", "exp"))
    (info,) = subgraphs(part)
    assert info.operators == ("nn.dense", "nn.bias_add", "nn.relu", "exp")
    data, weight = random((2, 3)), random((4, 3), 1)
    wanted = np.exp(np.maximum(data @ weight.T + 1, 0))
    np.testing.assert_allclose(execute(part, data, weight)[0], wanted, rtol=1e-5)


def test_chained_backends_of_different_spelling_leave_each_others_subgraphs_alone(
    claiming: Callable[..., str],
) -> None:
    mod, params = from_onnx()
    first = claiming("matmul", name="relax_names")
    second = claiming("nn.conv2d", "nn.bias_add", name="relay_names")
    for names in ([first, second], [second, first]):
        part = partition(mod, names, params)
        found = {info.backend: info.operators for info in subgraphs(part)}
        assert found["relax_names"] == ("nn.dense",)
        check(part, params)
