"""The page of a graph of 1,000 nodes in a headless Chromium."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from compiler.mxnet.symbol import Symbol
from compiler.mxnet.symbol.partition import partition_symbol
from compiler.partition import Strategy, register, unregister
from compiler.partition.partition_page import to_html

from ..browser import BROWSER, probe

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

PROBE = """
const boxes = [...document.querySelectorAll(".node rect")].map(r => r.getBoundingClientRect());
const overlaps = boxes.filter((a, i) => boxes.slice(i + 1).some(b =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length;
const labels = [...document.querySelectorAll(".node")];
const spilling = labels.filter(node =>
  node.querySelector("text").getBBox().width > node.querySelector("rect").getBBox().width).length;
const first = document.querySelector(".node").getBoundingClientRect();
const pane = document.getElementById("graph").getBoundingClientRect();
const visible = first.left >= pane.left && first.right <= pane.right && first.top >= 0;
document.querySelector("details summary").click();
const chosen = document.querySelectorAll(".node.chosen").length;
document.getElementById("search").value = "pooling";
document.getElementById("search").dispatchEvent(new Event("input"));
const found = document.querySelectorAll(".node.chosen").length;
const size = Math.round(boxes[0].height);
const fetched = performance.getEntriesByType("resource").length;
return {nodes: boxes.length, overlaps, spilling, visible, chosen, found, size, fetched};
"""


def thousand() -> Symbol:
    """Residual blocks with branches, 1,000 operators."""
    chance = random.Random(3)
    nodes: list[dict] = [{"op": "null", "name": "data", "inputs": []}]

    def add(op: str, *inputs: int) -> int:
        name = f"{op.lower()}{len(nodes)}"
        nodes.append({"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs]})
        return len(nodes) - 1

    last = 0
    while len(nodes) < 1001:
        start = add("relu", add("sin", last))
        ends = [add("exp", add("cos", start)) for _ in range(chance.randint(1, 3))]
        joined = ends[0]
        for end in ends[1:]:
            joined = add("elemwise_add", joined, end)
        joined = add("Pooling", joined) if chance.random() < 0.2 else joined
        last = add("elemwise_add", joined, last)
    return Symbol.loads(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[last, 0, 0]]}))


def test_a_thousand_nodes_are_readable_and_the_page_needs_nothing_else(tmp_path: Path) -> None:
    def claim(graph_json: str, ids: list[int], options: dict[str, str]) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] in ("sin", "relu", "elemwise_add"):
                ids[index] = -1

    register("drawn", Strategy("s", claim))
    try:
        result = partition_symbol(thousand(), "drawn")
    finally:
        unregister("drawn")
    page = to_html(result, "thousand")
    assert not re.search(r"(src|href)=|@import|url\(", page)
    seen = probe(page, PROBE, tmp_path)
    assert seen["nodes"] == len(result.graph.nodes) >= 1000
    assert seen["overlaps"] == seen["spilling"] == seen["fetched"] == 0
    assert seen["visible"] and seen["size"] >= 14
    assert seen["chosen"] == len(result.candidates[0].nodes)
    pooling = sum(node.op == "Pooling" for node in result.graph.nodes)
    assert seen["found"] == pooling > 0
