"""Least cost of choices: one for each node, with a cost for each choice and each pair of choices.

minimize sum of cost[v][x_v] + sum of cost[u, v][x_u, x_v]

`eliminate` is exact: dynamic programming over the graph's nodes, each replaced by what it costs its
neighbors at best. `reduce` solves the same as a partitioned boolean quadratic problem (Scholz and
Eckstein, "Register Allocation for Irregular Architectures", 2002): exact while nodes have at most
two neighbors, by a heuristic beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Costs = Mapping[int, np.ndarray]
PairCosts = Mapping[tuple[int, int], np.ndarray]


@dataclass
class _Graph:
    """Node costs, and for each ordered pair of neighbors the matrix (choices, choices)."""

    nodes: dict[int, np.ndarray]
    edges: dict[int, dict[int, np.ndarray]]

    @staticmethod
    def of(nodes: Costs, pairs: PairCosts) -> _Graph:
        graph = _Graph({n: c.astype("float64") for n, c in nodes.items()}, {n: {} for n in nodes})
        for (one, other), costs in pairs.items():
            graph.add(one, other, costs)
        return graph

    def add(self, one: int, other: int, costs: np.ndarray) -> None:
        present = self.edges[one].get(other, 0.0)
        self.edges[one][other] = present + costs
        self.edges[other][one] = self.edges[one][other].T

    def remove(self, node: int) -> None:
        for other in self.edges.pop(node):
            del self.edges[other][node]
        del self.nodes[node]


def reduce(nodes: Costs, pairs: PairCosts) -> dict[int, int]:
    """Choices of low cost; of the least where the graph reduces.

    Parameters
    ----------
    nodes : dict of node to (choices,)
    pairs : dict of (node, node) to (choices of the first, choices of the second)
    """
    graph = _Graph.of(nodes, pairs)
    decide: list[tuple[int, Callable[[dict[int, int]], int]]] = []
    while graph.nodes:
        node = min(graph.nodes, key=lambda n: len(graph.edges[n]))
        own, around = graph.nodes[node], dict(graph.edges[node])
        if len(around) <= 2:
            decide.append((node, _best_given(own, around)))
            _fold(graph, own, around)
        else:
            # A node of many neighbors takes what looks best if each of them may still choose.
            node = max(graph.nodes, key=lambda n: len(graph.edges[n]))
            own, around = graph.nodes[node], dict(graph.edges[node])
            hope = own + sum(
                (costs + graph.nodes[other]).min(axis=1) for other, costs in around.items()
            )
            choice = int(np.argmin(hope))
            decide.append((node, lambda _, choice=choice: choice))  # type: ignore[misc]
            for other, costs in around.items():
                graph.nodes[other] = graph.nodes[other] + costs[choice]
        graph.remove(node)
    chosen: dict[int, int] = {}
    for node, choose in reversed(decide):
        chosen[node] = choose(chosen)
    return chosen


def _best_given(
    own: np.ndarray, around: Mapping[int, np.ndarray]
) -> Callable[[dict[int, int]], int]:
    return lambda chosen: int(
        np.argmin(own + sum(costs[:, chosen[other]] for other, costs in around.items()))
    )


def _fold(graph: _Graph, own: np.ndarray, around: Mapping[int, np.ndarray]) -> None:
    """Give a node's best cost to its neighbors."""
    others = list(around)
    if len(others) == 1:
        graph.nodes[others[0]] = graph.nodes[others[0]] + (own[:, None] + around[others[0]]).min(0)
    elif len(others) == 2:
        first, second = (around[other] for other in others)
        costs = (own[:, None, None] + first[:, :, None] + second[:, None, :]).min(0)
        graph.add(others[0], others[1], costs)


def eliminate(nodes: Costs, pairs: PairCosts, max_num_states: int) -> dict[int, int] | None:
    """Choices of least cost, or None where a table would get more than `max_num_states` entries."""
    factors: list[tuple[tuple[int, ...], np.ndarray]] = [((n,), c) for n, c in nodes.items()]
    factors += [((one, other), costs) for (one, other), costs in pairs.items()]
    size = {node: len(costs) for node, costs in nodes.items()}
    left = set(nodes)
    trail: list[tuple[tuple[int, ...], np.ndarray]] = []
    while left:
        scopes = {
            node: tuple(dict.fromkeys(v for vs, _ in factors if node in vs for v in vs))
            for node in left
        }
        node = min(left, key=lambda n: np.prod([size[v] for v in scopes[n]], dtype="float64"))
        scope = (node, *(v for v in scopes[node] if v != node))
        if np.prod([size[v] for v in scope], dtype="float64") > max_num_states:
            return None
        total = np.zeros([size[v] for v in scope])
        for variables, costs in factors:
            if node in variables:
                total = total + _aligned(costs, variables, scope)
        factors = [factor for factor in factors if node not in factor[0]]
        if len(scope) > 1:
            factors.append((scope[1:], total.min(axis=0)))
        trail.append((scope, total))
        left.remove(node)
    chosen: dict[int, int] = {}
    for scope, total in reversed(trail):
        known: Any = (slice(None), *(chosen[v] for v in scope[1:]))
        chosen[scope[0]] = int(np.argmin(total[known]))
    return chosen


def _aligned(costs: np.ndarray, variables: tuple[int, ...], scope: tuple[int, ...]) -> np.ndarray:
    """A table over `variables` that broadcasts against one over `scope`."""
    order = sorted(range(len(variables)), key=lambda axis: scope.index(variables[axis]))
    moved = costs.transpose(order)
    present = {variables[axis] for axis in order}
    shape = iter(moved.shape)
    return moved.reshape([next(shape) if v in present else 1 for v in scope])


def total_cost(nodes: Costs, pairs: PairCosts, chosen: Mapping[int, int]) -> float:
    """Cost of all nodes and pairs under some choices."""
    own = sum(float(costs[chosen[node]]) for node, costs in nodes.items())
    shared = sum(float(costs[chosen[one], chosen[other]]) for (one, other), costs in pairs.items())
    return own + shared
