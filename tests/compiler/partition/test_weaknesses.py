"""What is known to go wrong in MXNet's partitioner, one test each: Baton does not have it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from compiler.errors import PartitionCallbackError
from compiler.mxnet.symbol import Symbol
from compiler.partition import Selector, Strategy, list_partitioners, register, unregister
from tests.compiler.partition.mxnet_growth import mxnet_groups
from tests.compiler.partition.mxnet_oracle import (
    Data,
    cases,
    is_acyclic,
    register_by_name,
    subgraphs,
    unregister_by_name,
)
from tests.compiler.partition.numpy_symbol import evaluate


@pytest.fixture(autouse=True)
def _clean_up() -> Iterator[None]:
    register_by_name()
    yield
    unregister_by_name()
    for name in set(list_partitioners()) & {"marks", "cutter", "restless"}:
        unregister(name)


def symbol_of(nodes: list[tuple[str, str, list[Any]]], heads: list[Any]) -> Symbol:
    """A symbol of (operator, name, inputs); an input is a name or (name, output)."""
    place = {name: index for index, (_, name, _) in enumerate(nodes)}

    def entry(item: Any) -> list[int]:
        name, output = (item, 0) if isinstance(item, str) else item
        return [place[name], output, 0]

    data = [{"op": op, "name": name, "inputs": [entry(i) for i in r]} for op, name, r in nodes]
    for node in data:
        if node["op"] == "SliceChannel":
            node["attrs"] = {"num_outputs": "2", "axis": "0"}
    variables = [i for i, node in enumerate(data) if node["op"] == "null"]
    return Symbol.loads(
        json.dumps({"nodes": data, "arg_nodes": variables, "heads": [entry(h) for h in heads]})
    )


def marking(**marks: int) -> Callable[[str, list[int], dict[str, str]], None]:
    """A `supported_ops` that marks nodes by name."""

    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            ids[index] = marks.get(node["name"], -2)

    return claim


def partitioned(symbol: Symbol, **marks: int) -> Data:
    register("marks", Strategy("marks", marking(**marks)), replace=True)
    return json.loads(symbol.optimize_for("marks").tojson())


def members(data: Data) -> list[list[str]]:
    return [each.members for each in subgraphs(data).values()]


def check_numbers(symbol: Symbol, data: Data, shape: tuple[int, ...] = (2, 2)) -> None:
    chance = np.random.default_rng(0)
    values = {name: chance.random(shape, "float32") for name in symbol.list_inputs()}
    mine = evaluate(Symbol.loads(json.dumps(data)), values)
    for found, expected in zip(mine, evaluate(symbol, values), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "name", ["a40_cycle_between_two_subgraphs", "a41_cycle_missed_by_visit_limit"]
)
def test_cycles_through_other_subgraphs_and_behind_diamonds_are_seen(name: str) -> None:
    """W1 and W2: the first of the two graphs shows the one, the second the other."""
    case = cases()[name]
    result = case.partitioned("plain")
    assert is_acyclic(json.loads(result.tojson()))
    for mine, theirs in zip(evaluate(result, case.inputs), case.outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_the_order_of_operands_does_not_decide_whether_a_cycle_is_seen() -> None:
    """W2: a detour behind ten levels of shared diamonds, on either side of an addition."""
    chain = [("null", "x", []), ("exp", "e", ["x"]), ("cos", "d0", ["e"])]
    chain += [("elemwise_mul", f"d{i + 1}", [f"d{i}", f"d{i}"]) for i in range(10)]
    found = []
    for operands in (["e", "d10"], ["d10", "e"]):
        symbol = symbol_of([*chain, ("elemwise_add", "s", operands)], ["s"])
        data = partitioned(symbol, e=-1, s=-1)
        check_numbers(symbol, data)
        found.append(members(data))
    assert found == [[["e"], ["s"]]] * 2


CHAIN = [
    ("null", "x", []),
    ("exp", "a", ["x"]),
    ("sin", "b", ["a"]),
    ("cos", "c", ["b"]),
    ("tanh", "d", ["c"]),
]


def test_a_filter_that_drops_a_node_in_the_middle_splits_the_subgraph() -> None:
    """W3."""

    class Cutter(Selector):
        def __init__(self, names: list[str]) -> None:
            self.names = names

        def select(self, node: int) -> bool:
            return self.names[node] in "abc"

        def select_output(self, node: int, output_node: int) -> bool:
            return self.names[output_node] in "abc"

        def filter(self, candidates: list[int]) -> list[int]:
            return [node for node in candidates if self.names[node] != "b" or len(candidates) == 1]

    def make(graph_json: str, options: dict[str, str]) -> Selector:
        return Cutter([node["name"] for node in json.loads(graph_json)["nodes"]])

    register("cutter", Strategy("s", selector=make))
    symbol = symbol_of(CHAIN, ["d"])
    data = json.loads(symbol.optimize_for("cutter").tojson())
    assert members(data) == [["a"], ["b"], ["c"]]
    check_numbers(symbol, data)


@pytest.mark.parametrize("dedup", [False, True])
def test_readers_of_repeated_outputs_get_their_own(dedup: bool) -> None:
    """W4: u is read twice outside, then t; the reader of t must not get u."""
    nodes = [
        *[("null", "x", []), ("exp", "u", ["x"]), ("cos", "p", ["u"]), ("tanh", "q", ["u"])],
        *[("sin", "t", ["u"]), ("abs", "r", ["t"])],
    ]
    symbol = symbol_of(nodes, ["p", "q", "r"])
    register("marks", Strategy("marks", marking(u=-1, t=-1)))
    data = json.loads(symbol.optimize_for("marks", dedup_subgraph=dedup).tojson())
    outputs = [name for name, _ in subgraphs(data)["_op0"].outputs]
    assert outputs == (["u", "t"] if dedup else ["u", "u", "t"])
    check_numbers(symbol, data)


def test_two_nodes_of_one_name_stay_two() -> None:
    """W5: names say nothing of identity, neither for claims nor for shared inputs."""
    case = cases()["a42_equal_node_names"]
    for run in ("plain", "dedup"):
        for mine, theirs in zip(evaluate(case.partitioned(run), case.inputs), case.outputs):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)

    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        ids[1] = -1

    register("marks", Strategy("s", claim))
    nodes = json.loads(symbol_of([("null", "x", []), ("exp", "a", ["x"])], ["a"]).tojson())["nodes"]
    nodes.append({"op": "sin", "name": "a", "inputs": [[1, 0, 0]]})
    twins = Symbol.loads(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[2, 0, 0]]}))
    once = twins.optimize_for("marks")
    assert [node.op for node in once.graph.nodes] == ["null", "_custom_subgraph_op", "sin"]


def test_subgraph_nodes_of_several_runs_have_different_names() -> None:
    """W5: MXNet calls the first subgraph of every strategy and run `_op0`."""
    register("marks", [Strategy("one", marking(a=-1)), Strategy("two", marking(c=-1))])
    symbol = symbol_of(CHAIN, ["d"]).optimize_for("marks")
    names = [node.name for node in symbol.graph.nodes]
    assert len(names) == len(set(names))


def test_names_of_inner_variables_are_unique() -> None:
    """W6: `a` numbered 10 and `a1` numbered 0 would both be `a10`."""
    nodes = [("null", "a", []), ("null", "a1", []), ("elemwise_add", "s0", ["a1", "a1"])]
    nodes += [("elemwise_add", f"s{i + 1}", [f"s{i}", "a"]) for i in range(12)]
    symbol = symbol_of(nodes, ["s12"])
    data = partitioned(symbol, **{f"s{i}": -1 for i in range(13)})
    (node,) = (node for node in data["nodes"] if node.get("subgraphs"))
    inner = [each["name"] for each in node["subgraphs"][0]["nodes"]]
    assert len(inner) == len(set(inner))
    original = [each["attrs"].get("argName") for each in node["subgraphs"][0]["nodes"][:2]]
    assert original == ["a1", "a1"]
    check_numbers(symbol, data)


def test_shared_inputs_stand_where_their_first_reader_put_them() -> None:
    """W7: with inputs shared, outputs of later subgraphs still follow the order of the edges."""
    for name, case in cases().items():
        if "dedup" not in case.runs or not case.random:
            continue
        data = json.loads(case.partitioned("dedup").tojson())
        for each in subgraphs(data).values():
            assert len(each.inputs) == len(set(each.inputs)), name


def test_arguments_are_bound_by_name_when_their_order_changes() -> None:
    """W8: contracting reorders the depth-first list of inputs, in MXNet as here."""
    case = cases()["a26_input_order_changes"]
    original = Symbol.loads(json.dumps(case.symbol))
    result = case.partitioned("plain")
    assert original.list_arguments() != result.list_arguments()
    assert sorted(original.list_arguments()) == sorted(result.list_arguments())
    for mine, theirs in zip(result.eval(**case.inputs), case.outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_node_is_not_left_out_because_of_one_that_is_left_out_later() -> None:
    """W9: from a, MXNet leaves out c, for the detour from b, although b itself does not stay."""
    nodes = [("null", "x", []), ("exp", "a", ["x"]), ("sin", "b", ["x"]), ("cos", "n", ["b"])]
    nodes += [("elemwise_add", "c", ["a", "n"]), ("elemwise_mul", "d", ["c", "b"])]
    symbol = symbol_of(nodes, ["d"])
    names = [node.name for node in symbol.graph.nodes]
    predecessors = [[entry.node for entry in node.inputs] for node in symbol.graph.nodes]
    theirs = mxnet_groups(predecessors, [name in "abcd" for name in names])
    assert [[names[node] for node in group] for group in theirs] == [["a"], ["b"], ["c", "d"]]
    data = partitioned(symbol, a=-1, b=-1, c=-1, d=-1)
    assert sorted(members(data)) == [["a", "c", "d"], ["b"]]
    check_numbers(symbol, data)


def test_a_node_of_any_subgraph_connects_what_belongs_together() -> None:
    """W10: growth goes on through a node of -1, and may begin at one."""
    symbol = symbol_of(CHAIN, ["d"])
    assert members(partitioned(symbol, a=0, b=-1, c=0)) == [["a", "b", "c"]]
    assert members(partitioned(symbol, a=-1, b=0, c=1)) == [["a", "b"], ["c"]]


def test_a_neighbor_refused_from_one_side_may_come_in_from_another() -> None:
    """W11: a refusal that was overruled leaves nothing behind that could exclude a node."""

    class OneSided(Selector):
        def __init__(self, names: list[str]) -> None:
            self.names = names

        def select(self, node: int) -> bool:
            return self.names[node] == "a"

        def select_output(self, node: int, output_node: int) -> bool:
            pair = self.names[node] + self.names[output_node]
            return pair in ("ab", "bs")  # s is refused from a, and taken from b

    def make(graph_json: str, options: dict[str, str]) -> Selector:
        return OneSided([node["name"] for node in json.loads(graph_json)["nodes"]])

    register("cutter", Strategy("s", selector=make))
    nodes = [("null", "x", []), ("exp", "a", ["x"]), ("sin", "b", ["a"])]
    symbol = symbol_of([*nodes, ("elemwise_add", "s", ["a", "b"])], ["s"])
    data = json.loads(symbol.optimize_for("cutter").tojson())
    assert members(data) == [["a", "b", "s"]]


def test_a_saved_partitioned_symbol_loads_lists_and_runs(tmp_path: Any) -> None:
    """W12."""
    case = cases()["a20_mlp_fc_only"]
    case.partitioned("plain").save(tmp_path / "symbol.json")
    loaded = Symbol.load(tmp_path / "symbol.json")
    assert "_CachedOp" in {node.op for node in loaded.graph.nodes}
    assert len(loaded.list_outputs()) == len(case.outputs)
    for mine, theirs in zip(loaded.eval(**case.inputs), case.outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_failed_run_leaves_nothing_behind() -> None:
    """W13."""
    symbol = symbol_of(CHAIN, ["d"])
    before = symbol.tojson()

    def review(graph_json, number, options, attrs, args, aux) -> bool:
        if "fail" in options and number == 1:
            raise ValueError("told to")
        return True

    register("marks", Strategy("marks", marking(a=-1, c=-1), review))
    expected = symbol.optimize_for("marks").tojson()
    with pytest.raises(PartitionCallbackError, match=r"subgraph 1.*told to"):
        symbol.optimize_for("marks", fail=1)
    assert symbol.tojson() == before
    assert symbol.optimize_for("marks").tojson() == expected


def test_threads_do_not_share_options_or_graphs() -> None:
    """W14."""

    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            time.sleep(0.001)
            if node["name"] in options["names"]:
                ids[index] = -1

    register("restless", Strategy("s", claim))
    symbol = symbol_of(CHAIN, ["d"])
    found: dict[str, list[list[str]]] = {}

    def work(names: str, dedup: bool) -> None:
        for _ in range(5):
            result = symbol.optimize_for("restless", names=names, dedup_subgraph=dedup)
            found[names] = members(json.loads(result.tojson()))

    jobs = [("ab", True), ("bc", False), ("ad", True), ("abcd", False)]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {
        "ab": [["a", "b"]],
        "bc": [["b", "c"]],
        "ad": [["a"], ["d"]],
        "abcd": [["a", "b", "c", "d"]],
    }
