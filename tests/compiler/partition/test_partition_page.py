"""Pictures of partitioned graphs: every node once, colored, escaped, well-formed, no overlap."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import tvm

from compiler.partition import Candidate, Partitioning, partition_with_report
from compiler.partition.graph import VARIABLE, Graph, Node
from compiler.partition.layered_layout import NODE_HEIGHT, NODE_WIDTH, layered
from compiler.partition.partition_page import to_html, to_svg
from compiler.partition.svg import color

from .test_driver import Detour

_SVG = "{http://www.w3.org/2000/svg}"


def nodes_of(svg: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [group for group in root.iter(f"{_SVG}g") if "node" in group.get("class", "")]


def test_every_operator_is_drawn_once_and_has_the_color_of_its_subgraph(
    claiming: Callable[..., str],
) -> None:
    result = partition_with_report(Detour, claiming("exp", "add"))
    drawn = nodes_of(to_svg(result))
    labels = [group.findtext(f"{_SVG}text") for group in drawn]
    assert sorted(labels) == ["add", "add", "add", "exp", "log", "w", "x"]
    fills = [group.find(f"{_SVG}rect").get("style", "") for group in drawn]
    assert [color(0) in fill for fill in fills].count(True) == 2
    assert [color(1) in fill for fill in fills].count(True) == 2


def test_rejected_subgraphs_are_marked_and_give_the_reason(claiming: Callable[..., str]) -> None:
    result = partition_with_report(Detour, claiming("exp", "add"), min_ops=9)
    kinds = [group.get("class") for group in nodes_of(to_svg(result))]
    assert kinds.count("node rejected") == 4
    page = to_html(result)
    assert "Rejected subgraphs: 2" in page
    assert page.count("min_ops=9: it has 2") == 6  # four tooltips and two descriptions


def test_names_and_attributes_are_escaped() -> None:
    evil = "<script>alert(1)</script>\"&'"
    graph = Graph([Node(VARIABLE, evil), Node(evil, "n", [(0, 0)], {evil: evil})], [(1, 0)])
    candidate = Candidate(evil, evil, 0, ("n",), (evil,), (evil,), True, "", {evil: evil})
    result = Partitioning(tvm.IRModule({}), graph, [candidate])
    assert "<script>alert" not in to_html(result, title=evil)
    ElementTree.fromstring(to_svg(result, title=evil))


def test_a_thousand_nodes_do_not_overlap_and_every_edge_leads_down() -> None:
    generator = random.Random(5)
    predecessors: list[list[int]] = [[]]
    for index in range(1, 1000):
        first = max(0, index - generator.choice([3, 3, 3, 40]))
        predecessors.append([generator.randrange(first, index) for _ in range(2)])
    layout = layered(predecessors)
    rows: dict[float, list[float]] = {}
    for x, y in layout.centers:
        assert NODE_WIDTH / 2 <= x <= layout.width - NODE_WIDTH / 2
        assert NODE_HEIGHT / 2 <= y <= layout.height - NODE_HEIGHT / 2
        rows.setdefault(y, []).append(x)
    for row in rows.values():
        assert all(b - a >= NODE_WIDTH for a, b in itertools.pairwise(sorted(row)))
    for (source, target), route in layout.routes.items():
        assert route[0] == layout.centers[source]
        assert route[-1] == layout.centers[target]
        assert all(above[1] < below[1] for above, below in itertools.pairwise(route))


def test_an_empty_graph_is_a_picture_too() -> None:
    page = to_html(Partitioning(tvm.IRModule({}), Graph(), []))
    assert re.search(r"0 of 0 operators", page)
