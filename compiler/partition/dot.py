"""Graphviz DOT text of a partitioned graph.

Accepted subgraphs are filled clusters. Rejected nodes have dashed borders. A tooltip shows the
attributes of a node and the reason of each rejection. Parameters and constants are omitted.
"""

from __future__ import annotations

import json

from compiler.backends.graph import VARIABLE, Node

from .candidates import Candidate, Partitioning


def to_dot(result: Partitioning, title: str = "") -> str:
    """Draw the graph of `partition_with_report` as DOT text, labeled `title`."""
    nodes = result.graph.nodes
    found: dict[str, list[Candidate]] = {}
    cluster_of: dict[str, int] = {}
    for number, candidate in enumerate(result.candidates):
        for name in candidate.nodes:
            found.setdefault(name, []).append(candidate)
            if candidate.accepted:
                cluster_of[name] = number
    drawn = [index for index, node in enumerate(nodes) if node.attrs.get("param") != "True"]
    clusters: dict[int | None, list[int]] = {}
    for index in drawn:
        clusters.setdefault(cluster_of.get(nodes[index].name), []).append(index)
    lines = [f"label={_quote(title or 'Partitioned graph')}", 'node [shape=box style="filled"]']
    for cluster, members in clusters.items():
        entries = [_node(index, nodes, found.get(nodes[index].name, [])) for index in members]
        if cluster is not None:
            label = f"label={_quote(_name(result.candidates[cluster]))}"
            entries = [f"subgraph cluster_{cluster} {{", label, *entries, "}"]
        lines += entries
    kept = set(drawn)
    lines += [
        f"n{source} -> n{index}"
        for index in drawn
        for source in dict.fromkeys(source for source, _ in nodes[index].inputs)
        if source in kept
    ]
    body = "\n".join(f"  {line}" for line in lines)
    return f"digraph partition {{\n{body}\n}}\n"


def _node(index: int, nodes: list[Node], candidates: list[Candidate]) -> str:
    node = nodes[index]
    attributes = {
        "label": node.name if node.op == VARIABLE else node.op,
        "tooltip": _tooltip(node, nodes, candidates),
        "fillcolor": "white",
    }
    if node.op == VARIABLE:
        attributes["fillcolor"] = "lightgray"
    elif any(each.accepted for each in candidates):
        attributes["fillcolor"] = "lightblue"
    elif candidates:
        attributes["style"] = "filled,dashed"
    return f"n{index} [{' '.join(f'{key}={_quote(value)}' for key, value in attributes.items())}]"


def _tooltip(node: Node, nodes: list[Node], candidates: list[Candidate]) -> str:
    lines = [f"{node.name}: {node.op}"]
    lines += [f"{key} = {value}" for key, value in node.all_attrs().items()]
    lines += [f"input {nodes[source].name}" for source, _ in node.inputs]
    lines += [f"{_name(each)}: {each.reason or 'accepted'}" for each in candidates]
    return "\n".join(lines)


def _name(candidate: Candidate) -> str:
    return f"{candidate.backend} / {candidate.strategy} {candidate.number}"


def _quote(text: str) -> str:
    """A quoted DOT string; line breaks and quotes are escaped as in JSON."""
    return json.dumps(text, ensure_ascii=False)
