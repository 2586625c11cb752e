"""DOT text of partitioned graphs: clusters, rejections and escapes."""

from __future__ import annotations

from collections.abc import Callable

import tvm

from compiler.backends.graph import VARIABLE, Graph, Node
from compiler.partition import Candidate, Partitioning, partition_with_report
from compiler.partition.dot import to_dot

from .test_driver import Detour


def test_every_operator_is_drawn_once_in_the_cluster_of_its_subgraph(
    claiming: Callable[..., str],
) -> None:
    text = to_dot(partition_with_report(Detour, claiming("exp", "add")))
    assert text.count("[label=") == 7
    assert text.count("subgraph cluster_") == 2
    assert text.count('fillcolor="lightblue"') == 4


def test_rejected_nodes_are_dashed_and_name_the_reason(claiming: Callable[..., str]) -> None:
    text = to_dot(partition_with_report(Detour, claiming("exp", "add"), min_ops=9))
    assert "subgraph cluster_" not in text
    assert text.count("filled,dashed") == text.count("min_ops=9: it has 2") == 4


def test_names_and_attributes_are_escaped() -> None:
    evil = 'a\\"] -> b\n'
    graph = Graph([Node(VARIABLE, evil), Node(evil, "n", [(0, 0)], {evil: evil})], [(1, 0)])
    candidate = Candidate(evil, evil, 0, ("n",), (evil,), (evil,), True, "", {evil: evil})
    text = to_dot(Partitioning(tvm.IRModule({}), graph, [candidate]), title=evil)
    assert 'a\\\\\\"] -> b\\n' in text
    assert len(text.splitlines()) == 10


def test_an_empty_graph_has_dot_text() -> None:
    text = to_dot(Partitioning(tvm.IRModule({}), Graph(), []))
    assert text.startswith("digraph partition {")
