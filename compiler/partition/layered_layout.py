"""Places the nodes of an acyclic graph in layers, from top to bottom, with few crossings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

NODE_WIDTH, NODE_HEIGHT = 168.0, 30.0
_LAYER_HEIGHT = 56.0
_GAP = 18.0
_WAYPOINT_WIDTH = 14.0
_SWEEPS = 7
_LONGEST_ROUTED = 150  # layers; a longer edge is drawn straight, not led around nodes


@dataclass(frozen=True)
class Layout:
    """Positions in pixels.

    Attributes
    ----------
    width, height : float
        Of the whole drawing.
    centers : list of (x, y)
        Middle of each node.
    routes : dict of (int, int) to list of (x, y)
        Points that the edge from a node to another passes, both ends included.
    """

    width: float
    height: float
    centers: list[tuple[float, float]]
    routes: dict[tuple[int, int], list[tuple[float, float]]]


def layered(predecessors: Sequence[Sequence[int]]) -> Layout:
    """Lay out a graph.

    Parameters
    ----------
    predecessors : sequence of sequences of int
        Nodes that feed node i, all smaller than i; repetitions allowed.
    """
    edges = [(s, t) for t, found in enumerate(predecessors) for s in dict.fromkeys(found)]
    depth = _depths(predecessors)
    layer = _layers(predecessors, edges, depth)
    weight = [1.0 + each for each in depth]
    count = len(predecessors)
    chains: dict[tuple[int, int], list[int]] = {}
    for source, target in edges:
        chain = [source]
        if layer[target] - layer[source] <= _LONGEST_ROUTED:
            for between in range(layer[source] + 1, layer[target]):
                layer.append(between)
                weight.append(weight[source])
                chain.append(len(layer) - 1)
        chains[source, target] = [*chain, target]
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for chain in chains.values():
        for one, two in itertools.pairwise(chain):
            below[one].append(two)
            above[two].append(one)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, row in enumerate(layer):
        rows[row].append(node)
    widths = [NODE_WIDTH if node < count else _WAYPOINT_WIDTH for node in range(len(layer))]
    x = _columns(rows, above, below, widths, weight)
    left = min((x[node] - widths[node] / 2 for node in range(len(x))), default=0.0) - _GAP
    right = max((x[node] + widths[node] / 2 for node in range(len(x))), default=0.0) + _GAP
    points = [
        (x[n] - left, _GAP + NODE_HEIGHT / 2 + layer[n] * _LAYER_HEIGHT) for n in range(len(x))
    ]
    return Layout(
        right - left,
        2 * _GAP + NODE_HEIGHT + max(len(rows) - 1, 0) * _LAYER_HEIGHT,
        points[:count],
        {edge: [points[node] for node in chain] for edge, chain in chains.items()},
    )


def _depths(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """Longest path to each node."""
    depth: list[int] = []
    for found in predecessors:
        depth.append(max((depth[source] + 1 for source in found), default=0))
    return depth


def _layers(
    predecessors: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]], depth: Sequence[int]
) -> list[int]:
    """Layer of each node: its depth; what has no inputs moves to right above its first reader."""
    layer = list(depth)
    first_reader: dict[int, int] = {}
    for source, target in edges:
        first_reader[source] = min(first_reader.get(source, layer[target]), layer[target])
    for node, found in enumerate(predecessors):
        if not found and node in first_reader:
            layer[node] = first_reader[node] - 1
    return layer


def _columns(
    rows: list[list[int]],
    above: list[list[int]],
    below: list[list[int]],
    widths: list[float],
    weight: list[float],
) -> list[float]:
    """x of each node: near the mean of its neighbors, rows sorted by it and without overlap.

    Neighbors weigh by depth, so that side inputs do not pull the main chain aside.
    """
    x = [0.0] * len(widths)
    for row in rows:
        _spread(row, x, widths, weight)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for row in rows if downward else reversed(rows):
            for node in row:
                near = above[node] if downward else below[node]
                if near:
                    total = sum(weight[other] for other in near)
                    x[node] = sum(x[other] * weight[other] for other in near) / total
            row.sort(key=lambda node: (x[node], node))
            _spread(row, x, widths, weight)
    return x


def _spread(row: list[int], x: list[float], widths: list[float], weight: list[float]) -> None:
    """Push the nodes of a row apart, keeping its center of gravity."""
    wanted = [x[node] for node in row]
    for one, two in itertools.pairwise(row):
        least = x[one] + (widths[one] + widths[two]) / 2 + _GAP
        x[two] = max(x[two], least)
    moved = sum(weight[node] * (x[node] - old) for node, old in zip(row, wanted))
    shift = moved / sum(weight[node] for node in row)
    for node in row:
        x[node] -= shift
