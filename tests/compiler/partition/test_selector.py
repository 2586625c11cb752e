"""Selectors: order of the calls, splits, and what they must not return."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

from compiler.backends import Unsupported
from compiler.backends.graph import VARIABLE, Graph, Node
from compiler.errors import PartitionCallbackError
from compiler.partition import Selector, Strategy, partition, register, subgraphs
from compiler.partition.regions import UNMARKED, find_regions
from compiler.partition.selector import select_marks

from .conftest import execute
from .test_driver import Detour, W, X, detour


class ByName(Selector):
    """Collects connected nodes of some operators and notes every call."""

    def __init__(self, graph_json: str, operators: set[str], drop: str = "") -> None:
        self.nodes = json.loads(graph_json)["nodes"]
        self.operators = operators
        self.drop = drop
        self.calls: list[tuple[str, ...]] = []

    def _wanted(self, call: str, *nodes: int) -> bool:
        self.calls.append((call, *(self.nodes[node]["name"] for node in nodes)))
        return self.nodes[nodes[-1]]["op"] in self.operators

    def select(self, node: int) -> bool:
        return self._wanted("select", node)

    def select_input(self, node: int, input_node: int) -> bool:
        return self._wanted("input", node, input_node)

    def select_output(self, node: int, output_node: int) -> bool:
        return self._wanted("output", node, output_node)

    def filter(self, candidates: list[int]) -> list[int]:
        names = [self.nodes[node]["name"] for node in candidates]
        self.calls.append(("filter", *names))
        return [node for node, name in zip(candidates, names) if name != self.drop]

    def reset(self) -> None:
        self.calls.append(("reset",))


def chain(*operators: str) -> Graph:
    """x -> n1 -> n2 -> ..., one node for each operator."""
    nodes = [Node(VARIABLE, "x")]
    nodes += [Node(op, f"n{i}", [(i - 1, 0)]) for i, op in enumerate(operators, 1)]
    return Graph(nodes, [(len(operators), 0)])


def diamond() -> Graph:
    """s = sin(x); y = cos(s); z = add(s, y)."""
    nodes = [Node(VARIABLE, "x"), Node("sin", "s", [(0, 0)]), Node("cos", "y", [(1, 0)])]
    return Graph([*nodes, Node("add", "z", [(1, 0), (2, 0)])], [(3, 0)])


def grow(graph: Graph, selector: Selector) -> list[int]:
    domains = [None if node.op == VARIABLE else 0 for node in graph.nodes]
    answers = select_marks(selector, graph, domains, "here")
    return [UNMARKED if isinstance(each, Unsupported) else each for each in answers]


def test_the_selector_is_asked_in_mxnets_order() -> None:
    graph = chain("exp", "sin", "cos", "exp")
    selector = ByName(graph.to_json(), {"exp", "sin"})
    assert grow(graph, selector) == [UNMARKED, 0, 0, UNMARKED, 1]
    assert selector.calls == [
        ("select", "x"),
        ("select", "n1"),
        ("input", "n1", "x"),
        ("output", "n1", "n2"),
        ("output", "n2", "n3"),
        ("filter", "n1", "n2"),
        ("select", "n3"),
        ("select", "n4"),
        ("input", "n4", "n3"),
        ("filter", "n4"),
    ]


def test_a_detour_resets_the_selector_and_grows_again_without_the_far_end() -> None:
    graph = diamond()
    selector = ByName(graph.to_json(), {"sin", "add"})
    assert grow(graph, selector) == [UNMARKED, 0, UNMARKED, 1]
    assert selector.calls == [
        ("select", "x"),
        ("select", "s"),
        ("input", "s", "x"),
        ("output", "s", "y"),
        ("output", "s", "z"),
        ("input", "z", "y"),
        ("reset",),
        ("input", "s", "x"),
        ("output", "s", "y"),
        ("filter", "s"),
        ("select", "y"),
        ("select", "z"),
        ("input", "z", "y"),
        ("filter", "z"),
    ]


def test_what_a_filter_leaves_unconnected_is_split() -> None:
    graph = chain("exp", "exp", "exp")
    marks = grow(graph, ByName(graph.to_json(), {"exp"}, drop="n2"))
    assert marks == [UNMARKED, 0, UNMARKED, 0]
    assert find_regions(graph.predecessors(), marks) == [[1], [3]]


def test_an_edge_can_be_refused_between_two_nodes_that_are_wanted() -> None:
    graph = chain("exp", "exp")

    class Alone(ByName):
        def select_output(self, node: int, output_node: int) -> bool:
            return False

        def select_input(self, node: int, input_node: int) -> bool:
            return False

    assert grow(graph, Alone(graph.to_json(), {"exp"})) == [UNMARKED, 0, 1]


def test_a_selector_partitions_a_module_and_the_numbers_stay() -> None:
    register("selecting", Strategy("s", selector=lambda text, _: ByName(text, {"exp", "add"})))
    result = partition(Detour, "selecting")
    assert [info.operators for info in subgraphs(result)] == [("exp", "add"), ("add", "add")]
    np.testing.assert_allclose(execute(result, X, W)[0], detour(X, W), rtol=1e-5)


def test_random_selectors_on_random_graphs_leave_an_acyclic_graph() -> None:
    generator = random.Random(7)

    class Dice(Selector):
        def select(self, node: int) -> bool:
            return generator.random() < 0.7

        def select_input(self, node: int, input_node: int) -> bool:
            return generator.random() < 0.6

        def select_output(self, node: int, output_node: int) -> bool:
            return generator.random() < 0.6

        def filter(self, candidates: list[int]) -> list[int]:
            return [node for node in candidates if generator.random() < 0.9]

    for _ in range(300):
        size = generator.randrange(2, 40)
        nodes = [Node(VARIABLE, "x")]
        for index in range(1, size):
            count = generator.randrange(1, 4)
            sources = [(generator.randrange(max(0, index - 8), index), 0) for _ in range(count)]
            nodes.append(Node("op", f"n{index}", sources))
        graph = Graph(nodes, [(size - 1, 0)])
        marks = grow(graph, Dice())
        regions = find_regions(graph.predecessors(), marks)
        assert sum(map(len, regions)) == sum(mark != UNMARKED for mark in marks)
        assert acyclic(graph, regions)


def acyclic(graph: Graph, regions: list[list[int]]) -> bool:
    group = list(range(len(graph.nodes)))
    for region in regions:
        for node in region:
            group[node] = region[0]
    edges = {
        (group[source], group[node])
        for node, sources in enumerate(graph.predecessors())
        for source in sources
        if group[source] != group[node]
    }
    left = set(group)
    while left:
        free = left - {target for source, target in edges if source in left}
        if not free:
            return False
        left -= free
    return True


def raising(*arguments: Any) -> Any:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("method", "broken", "message"),
    [
        ("select", raising, "select of the selector raised ValueError: boom"),
        ("select_output", lambda *_: 2, "returned 2, not True, False"),
        ("filter", lambda *_: [99], "filter of the selector returned 99.*none of its candidates"),
        ("filter", lambda *_: 5, "filter of the selector returned 5, not a list"),
        ("reset", raising, "reset of the selector raised"),
    ],
)
def test_a_misbehaving_selector_is_one_clear_error_and_the_module_stays(
    method: str, broken: Callable[..., Any], message: str
) -> None:
    def make(text: str, options: dict[str, str]) -> Selector:
        selector = ByName(text, {"exp", "add"})
        setattr(selector, method, broken)
        return selector

    register("broken", Strategy("s", selector=make))
    before = tvm.ir.save_json(Detour)
    with pytest.raises(PartitionCallbackError, match=f"'broken', strategy 's': .*{message}"):
        partition(Detour, "broken")
    assert tvm.ir.save_json(Detour) == before


def test_a_selector_callback_must_return_a_selector() -> None:
    register("none", Strategy("s", selector=lambda text, options: None))
    with pytest.raises(PartitionCallbackError, match="selector returned None, which lacks"):
        partition(Detour, "none")


def test_a_selector_is_made_once_per_strategy_run() -> None:
    counter = itertools.count()

    def make(text: str, options: dict[str, str]) -> Selector:
        next(counter)
        return ByName(text, {"exp", "log", "add"})

    register("once", Strategy("s", selector=make))
    partition(Detour, "once")
    assert next(counter) == 1
