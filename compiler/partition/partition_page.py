"""A partitioned graph as a picture: SVG, or an HTML page with the details of every subgraph.

Both are self-contained. Parameters and constants are not drawn but named at what reads them.
"""

from __future__ import annotations

from collections import Counter
from html import escape

from .candidates import Candidate, Partitioning
from .graph import VARIABLE, Node
from .svg import Box, color, draw

_PAGE_STYLE = """
body { margin: 0; display: flex; height: 100vh; font: 14px system-ui, sans-serif; color: #222; }
#graph { flex: 1; overflow: auto; }
#side { width: 26rem; overflow: auto; padding: 0 1rem; border-left: 1px solid #ccc; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; }
details { margin: .3rem 0; padding: .3rem .5rem; background: #f7f7f7; }
details { border-left: 1rem solid #ccc; }
dt { font-weight: bold; } dd { margin: 0 0 .4rem 1rem; overflow-wrap: anywhere; }
.node { cursor: pointer; }
label { display: block; margin: .5rem 0; } input { width: 100%; box-sizing: border-box; }
"""

_SCRIPT = """
const svg = document.querySelector("svg");
const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
function zoom(factor) {
  svg.setAttribute("width", width * factor);
  svg.setAttribute("height", height * factor);
}
function choose(nodes) {
  document.querySelectorAll(".chosen").forEach(node => node.classList.remove("chosen"));
  nodes.forEach(node => node.classList.add("chosen"));
  if (nodes.length) nodes[0].scrollIntoView({block: "center", inline: "center"});
}
const nodes = [...document.querySelectorAll(".node")];
document.getElementById("zoom").addEventListener("input", event => zoom(event.target.value / 100));
document.getElementById("search").addEventListener("input", event => {
  const text = event.target.value.toLowerCase();
  const named = node => node.querySelector("title").textContent.split("\\n")[0].toLowerCase();
  choose(text ? nodes.filter(node => named(node).includes(text)) : []);
});
document.querySelectorAll("details").forEach(item => {
  item.querySelector("summary").addEventListener("click", () =>
    choose(nodes.filter(node => node.dataset.subgraph.split(" ").includes(item.dataset.subgraph))));
});
nodes.forEach(node => node.addEventListener("click", () => {
  const last = node.dataset.subgraph.split(" ").pop();
  const item = document.querySelector(`details[data-subgraph="${last}"]`);
  choose([node]);
  if (last && item) { item.open = true; item.scrollIntoView({block: "nearest"}); }
}));
// A wide graph begins far from the corner: fit its width if that stays readable, show its top.
const pane = document.getElementById("graph").clientWidth;
const fitting = Math.min(100, Math.max(50, Math.floor(100 * pane / width)));
document.getElementById("zoom").value = fitting;
zoom(fitting / 100);
if (nodes.length) nodes[0].scrollIntoView({block: "nearest", inline: "center"});
"""


def to_svg(result: Partitioning, title: str = "") -> str:
    """The graph as an SVG document; hovering over a node shows its attributes.

    Parameters
    ----------
    result : Partitioning
        Of `partition_with_report`.
    title : str
        Shown by viewers; the model's name.
    """
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_Picture(result).svg(title)}\n'


def to_html(result: Partitioning, title: str = "") -> str:
    """A page: the graph, to be zoomed and searched, and beside it every subgraph in full.

    Parameters
    ----------
    result : Partitioning
        Of `partition_with_report`.
    title : str
        The model's name.
    """
    accepted = [i for i, candidate in enumerate(result.candidates) if candidate.accepted]
    rejected = [i for i, candidate in enumerate(result.candidates) if not candidate.accepted]
    operators = sum(node.op != VARIABLE for node in result.graph.nodes)
    claimed = len({name for i in accepted for name in result.candidates[i].nodes})
    sections = []
    for heading, indices in (("Accepted", accepted), ("Rejected", rejected)):
        entries = "\n".join(_details(index, result.candidates[index]) for index in indices)
        sections.append(f"<h2>{heading} subgraphs: {len(indices)}</h2>\n{entries}")
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{escape(title or "Partitioned graph")}</title>
<style>{_PAGE_STYLE}</style></head>
<body>
<main id="graph">{_Picture(result).svg(title)}</main>
<aside id="side">
<h1>{escape(title or "Partitioned graph")}</h1>
<p>{claimed} of {operators} operators are in {len(accepted)} subgraphs.</p>
<label>Zoom <input id="zoom" type="range" min="10" max="200" value="100"></label>
<label>Find nodes <input id="search" type="search"></label>
{"".join(sections)}
</aside>
<script>{_SCRIPT}</script>
</body>
</html>
"""


class _Picture:
    """The drawn nodes, their places and the candidates they were in."""

    def __init__(self, result: Partitioning) -> None:
        self._result = result
        graph = result.graph
        self._drawn = [
            index for index, node in enumerate(graph.nodes) if node.attrs.get("param") != "True"
        ]
        self._candidates: dict[str, list[int]] = {}
        for index, candidate in enumerate(result.candidates):
            for name in candidate.nodes:
                self._candidates.setdefault(name, []).append(index)

    def svg(self, title: str) -> str:
        nodes = self._result.graph.nodes
        position = {index: place for place, index in enumerate(self._drawn)}
        read = [
            [position[source] for source, _ in nodes[index].inputs if source in position]
            for index in self._drawn
        ]
        boxes = [self._box(nodes[index]) for index in self._drawn]
        return draw(boxes, read, title or "Partitioned graph")

    def _box(self, node: Node) -> Box:
        found = self._candidates.get(node.name, [])
        accepted = [i for i in found if self._result.candidates[i].accepted]
        kind = "input" if node.op == VARIABLE else "rejected" if found and not accepted else ""
        return Box(
            node.name if node.op == VARIABLE else node.op,
            self._tooltip(node, found),
            kind,
            f"fill: {color(accepted[-1])}" if accepted else "",
            {"subgraph": " ".join(map(str, found))},
        )

    def _tooltip(self, node: Node, found: list[int]) -> str:
        nodes = self._result.graph.nodes
        read = [nodes[source].name for source, _ in node.inputs]
        lines = [f"{node.name}: {node.op}"]
        lines += [f"{key} = {value}" for key, value in node.all_attrs().items()]
        lines += [f"reads {', '.join(read)}"] if read else []
        for index in found:
            candidate = self._result.candidates[index]
            lines.append(f"{_name(candidate)}: {candidate.reason or 'accepted'}")
        return "\n".join(lines)


def _name(candidate: Candidate) -> str:
    return f"{candidate.backend} / {candidate.strategy} {candidate.number}"


def _details(index: int, candidate: Candidate) -> str:
    counts = Counter(candidate.operators)
    facts = {
        "rejected because": candidate.reason,
        "target": candidate.attrs.get("target", "that of the build") if candidate.accepted else "",
        "operators": ", ".join(f"{n} {op}" if n > 1 else op for op, n in counts.items()),
        "nodes": ", ".join(candidate.nodes),
        "parameters": ", ".join(candidate.parameters) or "none",
        "attributes": ", ".join(f"{k} = {v}" for k, v in candidate.attrs.items() if k != "target"),
    }
    entries = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items() if value
    )
    border = color(index) if candidate.accepted else "#b00020"
    return (
        f'<details data-subgraph="{index}" style="border-color: {border}"><summary>'
        f"{escape(_name(candidate))}: {len(candidate.nodes)} operators</summary>"
        f"<dl>{entries}</dl></details>"
    )
