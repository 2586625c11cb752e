"""Explanations of partitionings: reasons, shares, boundaries, cuts and counterfactuals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.errors import PartitionCallbackError, PartitionError
from compiler.mxnet import symbol as sym
from compiler.partition import (
    Selector,
    Strategy,
    Unsupported,
    explain,
    partition,
    partition_with_report,
    register,
)
from compiler.partition.costs import Rates
from compiler.runtime import graph_executor

from .test_driver import Detour, W, text

RATES = Rates(gflops=1.0, gbytes=1.0, call_microseconds=10.0)


def reasons(name: str, mod: Any = Detour, **options: Any) -> dict[str, list[tuple[str, str]]]:
    """Kinds and reasons of the operators that stay behind, by operator."""
    found = explain(mod, name, rates=RATES, **options)
    return {
        left.operator: [(each.kind, each.reason) for each in left.reasons] for left in found.left
    }


def only_exp(node: dict[str, Any], inputs: list[dict[str, Any]], options: Any) -> Any:
    return node["op"] == "exp" or Unsupported(f"{node['op']} of {inputs[0]['op']}")


class OnlyExp(Selector):
    def __init__(self, graph_json: str, _options: Any) -> None:
        self.nodes = json.loads(graph_json)["nodes"]

    def select(self, node: int) -> Any:
        return self.nodes[node]["op"] == "exp" or Unsupported("no start")

    def select_output(self, node: int, output_node: int) -> Any:
        return Unsupported(f"no way from {self.nodes[node]['op']}")


def marks_with_reasons(graph_json: str, ids: list[Any], options: Any) -> None:
    for index, node in enumerate(json.loads(graph_json)["nodes"]):
        ids[index] = -1 if node["op"] == "exp" else Unsupported(f"no {node['op']}")


CHECKS = {
    "marks": (Strategy("s", marks_with_reasons), "no log", "no add"),
    "check": (Strategy("s", check=only_exp), "log of exp", "add of add"),
    "selector": (Strategy("s", selector=OnlyExp), "no start", "no start"),
}


@pytest.mark.parametrize("way", CHECKS)
def test_every_way_of_selecting_gives_reasons(way: str) -> None:
    strategy, log, add = CHECKS[way]
    register("test", strategy)
    found = reasons("test")
    assert found["log"] == [("check", log)]
    assert found["add"] == [("check", add)]


def test_a_strategy_without_reasons_and_a_review_with_one(claiming: Callable[..., str]) -> None:
    assert reasons(claiming("exp"))["log"] == [
        ("unselected", "strategy 'by_name' does not select it")
    ]

    def review(*_: Any) -> Any:
        return Unsupported("too few rows")

    assert reasons(claiming("exp", name="two", review=review))["exp"] == [
        ("review", "too few rows")
    ]
    assert reasons(claiming("log", name="three"), min_ops=2)["log"] == [
        ("limit", "min_ops=2: it has 1")
    ]


def test_answers_that_are_none_are_errors() -> None:
    register("test", Strategy("s", check=lambda node, inputs, options: "yes"))
    with pytest.raises(PartitionCallbackError, match=r"check of exp .* returned 'yes'"):
        partition(Detour, "test")
    for reason in ("", None, 3):
        with pytest.raises(PartitionError, match="non-empty str"):
            Unsupported(reason)  # type: ignore[arg-type]
    with pytest.raises(PartitionError, match="needs exactly one of"):
        Strategy("s", marks_with_reasons, check=only_exp)


def test_selecting_can_not_change_the_graph() -> None:
    """Callbacks that write to everything they get leave module, graph and values as they were."""
    seen: list[str] = []

    def spoil(graph_json: str, ids: list[Any], options: dict[str, str]) -> None:
        seen.append(graph_json)
        graph = json.loads(graph_json)
        graph["nodes"].clear()
        options["added"] = "x"
        ids[:] = [-1] * len(ids)

    def spoil_node(node: dict[str, Any], inputs: list[dict[str, Any]], options: Any) -> Any:
        node["op"], options["added"] = "log", "x"
        for each in inputs:
            each.clear()
        node["inputs"].clear()
        node["attrs"].clear()
        return True

    def review(text: str, _number: int, options: Any, _attrs: Any, args: Any, _aux: Any) -> bool:
        options["more"] = "x"
        for value in args.values():
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0
        with pytest.raises(TypeError):
            args["other"] = 1
        return True

    class Spoiler(OnlyExp):
        def select(self, node: int) -> bool:
            self.nodes[node]["op"] = "gone"
            return True

        def filter(self, candidates: list[int]) -> list[int]:
            kept = list(candidates)
            candidates.clear()
            return kept

    register("first", Strategy("s", spoil, review))
    register("second", Strategy("s", check=spoil_node, accept_subgraph=review))
    register("third", Strategy("s", selector=Spoiler, accept_subgraph=review))
    values = {"w": W.copy()}
    before, operators = text(Detour), 5
    for name in ("first", "second", "third"):
        done = partition_with_report(Detour, name, values, mode="plain")
        nodes = [node for node in done.graph.nodes if node.op != "null"]
        assert [node.op for node in nodes] == ["exp", "add", "log", "add", "add"]
        assert sum(len(each.operators) for each in done.candidates) == operators
        assert done.selections[0].graph.to_json() == done.graph.to_json()
        assert text(Detour) == before
        np.testing.assert_array_equal(values["w"], W)
    assert json.loads(seen[0])["nodes"]


def test_shares_boundaries_and_cuts_of_a_detour(claiming: Callable[..., str]) -> None:
    found = explain(Detour, claiming("exp", "add"), rates=RATES)
    mine, build = found.shares
    assert (mine.backend, mine.regions, mine.operators) == ("test", 2, 4)
    assert (build.backend, build.regions, build.operators) == ("baton", 0, 1)
    assert (found.operators, found.flops) == (5, 5 * 32)
    assert mine.flops_share == 0.8
    # exp and add read 128 + 32 bytes and write 128 each: 1 byte takes 1 ns.
    assert build.microseconds == pytest.approx(0.256)
    (cut,) = found.cuts
    assert cut.kind == "cycle"
    assert "through log" in cut.reason
    # a to log, b to the second subgraph, log's result to the second subgraph
    assert [(each.producer, each.consumer, each.bytes) for each in found.boundaries] == [
        ("test 0", "baton", 128),
        ("test 0", "test 1", 128),
        ("baton", "test 1", 128),
    ]


def test_a_counterfactual_is_what_partitioning_with_the_operator_gives(
    claiming: Callable[..., str],
) -> None:
    found = explain(Detour, claiming("exp", "add"), rates=RATES)
    (counterfactual,) = found.counterfactuals
    assert counterfactual.operators == ("log",)
    assert counterfactual.regions == (2, 1)
    assert counterfactual.flops_share == (0.8, 1.0)
    assert counterfactual.boundary_bytes == (3 * 128, 0)
    # One call of 10 us less, and 3 tensors of 128 bytes written and read.
    assert counterfactual.saved_microseconds == pytest.approx(10 + 2 * 3 * 0.128)
    really = explain(Detour, claiming("exp", "add", "log", name="more"), rates=RATES)
    assert (really.shares[0].regions, really.shares[0].flops_share) == (1, 1.0)
    assert not really.boundaries
    assert "2 -> 1 regions, 80% -> 100% of the FLOPs" in str(counterfactual)


def test_what_if_names_operators_that_stay_behind(claiming: Callable[..., str]) -> None:
    name = claiming("add")
    found = explain(Detour, name, what_if=["exp", ("exp", "log")], rates=RATES)
    by_operators = {each.operators: each.regions[1] for each in found.counterfactuals}
    assert by_operators == {("exp",): 2, ("exp", "log"): 1}
    with pytest.raises(PartitionError, match="no operator 'lgo' stays behind; did you mean log"):
        explain(Detour, name, what_if=["lgo"])


def test_regions_that_a_limit_or_a_number_keeps_apart_say_so(claiming: Callable[..., str]) -> None:
    cuts = explain(Detour, claiming(), max_ops=3, rates=RATES).cuts
    assert {cut.kind for cut in cuts} == {"limit"}

    def numbered(graph_json: str, ids: list[Any], options: Any) -> None:
        ids[:] = range(len(ids))

    register("numbered", Strategy("s", numbered))
    assert {cut.kind for cut in explain(Detour, "numbered", rates=RATES).cuts} == {"number"}


@pytest.fixture
def network() -> onnx.ModelProto:
    """Named nodes: stem (Conv), act (LeakyRelu), head (Conv), cast to float64."""
    weights = np.ones((4, 4, 3, 3), "float32")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["c"], ["a"], "act"),
        helper.make_node("Conv", ["a", "w"], ["d"], "head", pads=[1, 1, 1, 1]),
        helper.make_node("Softmax", ["d"], ["y"], "probabilities"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_operators_of_an_onnx_model_have_its_names(network: onnx.ModelProto) -> None:
    mod, params = relay.frontend.from_onnx(network)
    found = explain(mod, "onnxruntime", params, rates=RATES, ops="nn.conv2d")
    assert [(each.name, each.operator) for each in found.left] == [
        ("act", "nn.leaky_relu"),
        ("probabilities", "nn.softmax"),
    ]
    assert [each.name for each in found.boundaries] == ["stem", "act", "head"]
    assert {each.bytes for each in found.boundaries} == {4 * 8 * 8 * 4}
    # 2 x 4 x 9 operations for each of 256 results of both convolutions
    assert found.shares[0].flops == 2 * 256 * 72
    first = found.counterfactuals[0]
    assert first.operators == ("nn.leaky_relu", "nn.softmax")
    assert first.regions == (2, 1)


def test_a_chain_of_back_ends_gives_a_reason_of_each(network: onnx.ModelProto) -> None:
    mod, params = relay.frontend.from_onnx(network)
    for name, op in (("one", "nn.conv2d"), ("two", "nn.leaky_relu")):
        register(name, Strategy("s", check=lambda node, *_, op=op: node["op"] == op))
    found = explain(mod, ["one", "two"], params, rates=RATES)
    assert [(each.backend, each.operators) for each in found.shares] == [
        ("one", 2),
        ("two", 1),
        ("baton", 1),
    ]
    (left,) = found.left
    assert [each.backend for each in left.reasons] == ["one", "two"]
    assert [(each.producer, each.consumer) for each in found.boundaries] == [
        ("one 0", "two 0"),
        ("two 0", "one 1"),
        ("one 1", "baton"),
    ]


def test_branches_are_explained_too(claiming: Callable[..., str]) -> None:
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.exp(relay.log(x)), relay.tanh(x))
    mod = tvm.IRModule.from_expr(relay.Function([x, flag], body))
    found = explain(mod, claiming("exp", "tanh"), rates=RATES)
    assert found.shares[0].operators == 2
    left = {each.operator: each.reasons[0].kind for each in found.left}
    assert left == {"if": "scope", "log": "unselected"}


def test_a_symbol_carries_its_selections(claiming: Callable[..., str]) -> None:
    from compiler.mxnet.symbol.partition import partition_symbol

    symbol = sym.exp(sym.log(sym.var("data")))
    done = partition_symbol(symbol, claiming("exp"))
    (selection,) = done.selections
    assert [each.kind for each in selection.claims.reasons.values()] == ["unselected"]


def test_the_summary_has_two_lines(claiming: Callable[..., str]) -> None:
    assert explain(Detour, claiming("exp", "add"), rates=RATES).summary() == [
        "partition: test 80% of 5 operators and 80% of the FLOPs in 2 regions",
        "left to the build: 1 log (strategy 'by_name' does not select it)",
    ]
    whole = explain(Detour, claiming(name="whole"), rates=RATES)
    assert whole.summary()[1] == "nothing stays behind"
    assert json.loads(json.dumps(whole.to_json()))["shares"][0]["regions"] == 1


def test_partition_and_optimize_for_write_the_summary_unless_quiet(
    claiming: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = claiming("exp", "add")
    partition(Detour, name)
    assert capsys.readouterr().err.splitlines() == explain(Detour, name, rates=RATES).summary()
    symbol = sym.exp(sym.log(sym.var("data")))
    symbol.optimize_for(name)
    assert capsys.readouterr().err.splitlines() == [
        "partition: test 50% of 2 operators in 1 region",
        "left to the build: 1 log (strategy 'by_name' does not select it)",
    ]
    logger = logging.getLogger("baton")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        partition(Detour, name)
        symbol.optimize_for(name)
    finally:
        logger.setLevel(before)
    assert not capsys.readouterr().err


def test_predicted_bytes_are_those_that_a_back_end_gets_and_returns(
    network: onnx.ModelProto,
) -> None:
    """Inputs and results of a subgraph without parameters, counted while it runs."""
    counted = {"in": 0, "out": 0}

    def compile_part(subgraph: Any, params: Any, options: Any) -> Any:
        def run(*inputs: np.ndarray) -> np.ndarray:
            counted["in"] += sum(value.nbytes for value in inputs)
            result = np.maximum(inputs[0], 0.01 * inputs[0])
            counted["out"] += result.nbytes
            return result

        return run

    register(
        "mine",
        Strategy("s", check=lambda node, *_: node["op"] == "nn.leaky_relu"),
        compile=compile_part,
    )
    mod, params = relay.frontend.from_onnx(network)
    predicted = explain(mod, "mine", params, rates=RATES).boundaries
    library = relay.build(partition(mod, "mine", params), "llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=np.ones((1, 4, 8, 8), "float32"))
    assert counted["in"] == sum(each.bytes for each in predicted if each.consumer == "mine 0")
    assert counted["out"] == sum(each.bytes for each in predicted if each.producer == "mine 0")
    assert counted["in"] == counted["out"] == 4 * 4 * 8 * 8


def test_notebooks_show_who_runs_what_and_why_the_rest_stays(claiming: Callable[..., str]) -> None:
    page = explain(Detour, claiming("exp", "add"), rates=RATES)._repr_html_()
    assert page.count("<table>") == 2
    assert "<th>subgraphs</th>" in page
    assert "<td>baton</td>" in page
    assert "<th>why no back end took it</th>" in page
