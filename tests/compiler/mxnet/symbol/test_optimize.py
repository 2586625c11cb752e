"""What `Symbol.optimize_for` takes and refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

import compiler
from compiler import partition
from compiler.errors import PartitionError
from compiler.mxnet import symbol as sym
from compiler.mxnet.symbol import loads

NODES = [
    {"op": "null", "name": "x", "inputs": [], "attrs": {"__shape__": "(2, 3)"}},
    *({"op": "null", "name": f"bn_{n}", "inputs": []} for n in ("gamma", "beta")),
    *({"op": "null", "name": f"bn_moving_{n}", "inputs": []} for n in ("mean", "var")),
    {"op": "BatchNorm", "name": "bn", "inputs": [[index, 0, 0] for index in range(5)]},
    {"op": "relu", "name": "act", "inputs": [[5, 0, 0]]},
]
ARGS = {
    "x": np.ones((2, 3), "float32"),
    "bn_gamma": np.full(3, 2, "float32"),
    "bn_beta": np.zeros(3, "float32"),
}
AUX = {"bn_moving_mean": np.zeros(3, "float32"), "bn_moving_var": np.ones(3, "float32")}


@pytest.fixture
def symbol():
    graph = {"nodes": NODES, "arg_nodes": list(range(5)), "heads": [[6, 0, 0]]}
    return loads(json.dumps(graph))


@pytest.fixture
def seen():
    """What a backend that claims everything but variables sees."""
    found: dict = {}

    def supported(graph, ids, options):
        for index, node in enumerate(json.loads(graph)["nodes"]):
            ids[index] = -1 if node["op"] != "null" else ids[index]
        found["shapes"] = [
            n.get("attrs", {}).get("__ext_shape__") for n in json.loads(graph)["nodes"]
        ]

    def accept(graph, number, options, attrs, args, aux):
        found.update(args=dict(args), aux=dict(aux))
        return True

    partition.register("sees", [partition.Strategy("s", supported, accept)])
    yield found
    partition.unregister("sees")


def claimed(symbol) -> list[str]:
    inner = [graph for node in symbol.graph.nodes for graph in node.subgraphs]
    return [node.op for graph in inner for node in graph.nodes if node.op != "null"]


def test_auxiliary_states_may_be_left_out(symbol, seen):
    symbol.optimize_for("sees", args=ARGS)
    assert seen["args"].keys() == ARGS.keys()
    assert seen["aux"] == {}
    assert seen["shapes"][-1] == "[[2,3]]"


def test_lists_of_values_are_in_the_order_of_the_arguments(symbol, seen):
    assert symbol.list_arguments() == list(ARGS)
    symbol.optimize_for("sees", args=list(ARGS.values()), aux=list(AUX.values()))
    np.testing.assert_array_equal(seen["args"]["bn_gamma"], ARGS["bn_gamma"])
    np.testing.assert_array_equal(seen["aux"]["bn_moving_var"], AUX["bn_moving_var"])
    with pytest.raises(PartitionError, match="a list of 2 arrays; the symbol takes 3: x, bn_gamma"):
        symbol.optimize_for("sees", args=list(ARGS.values())[:2])


def test_values_that_contradict_the_symbol_are_refused(symbol, seen):
    wrong = {**ARGS, "x": np.ones((2, 4), "float32")}
    with pytest.raises(PartitionError, match=r"'x' has the shape \(2, 4\).* \(2, 3\)"):
        symbol.optimize_for("sees", args=wrong)
    with pytest.raises(PartitionError, match="args is needed too"):
        symbol.optimize_for("sees", aux=AUX)
    with pytest.raises(PartitionError, match="devices are cpu, gpu"):
        symbol.optimize_for("sees", ctx="nonsense")


@pytest.mark.parametrize("names", ["BatchNorm,relu", ["BatchNorm", "relu"]])
def test_the_backend_default_claims_what_it_is_told(symbol, names):
    assert claimed(symbol.optimize_for("default", op_names=names)) == ["BatchNorm", "relu"]
    assert claimed(symbol.optimize_for("default", op_names="relu")) == ["relu"]


def test_the_backend_default_without_names_selects_nothing_and_says_so(symbol, caplog):
    assert claimed(symbol.optimize_for("default", args=dict(ARGS), aux=dict(AUX), ctx="cpu")) == []
    assert "option op_names; none is given" in caplog.text


def test_the_environment_names_a_backend_for_bind(monkeypatch, caplog):
    x = sym.var("x")
    made, value = sym.log(sym.exp(x)), np.ones(2, "float32")
    claim = partition.Strategy("s", lambda graph, ids, options: [-1] * len(ids))
    partition.register("of_environment", claim, replace=True)
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "of_environment")
    executor = made.bind(args={"x": value})
    assert [each["backend"] for each in executor.library.partition_info().values()] == [
        "of_environment"
    ]
    np.testing.assert_allclose(executor.forward()[0], value, rtol=1e-6)
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")
    assert not made.bind(args={"x": value}).library.partition_info()
    assert "MXNET_SUBGRAPH_BACKEND=MKLDNN: no such backend" in caplog.text


def test_checkpoints_load_by_mxnets_name():
    assert compiler.mxnet.model.load_checkpoint is compiler.mxnet.symbol.load_checkpoint
