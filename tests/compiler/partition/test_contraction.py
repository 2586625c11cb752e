"""The acyclic contraction against reachability computed from scratch."""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.partition import contraction
from compiler.partition.contraction import AcyclicContraction, topological_order


def second_path(edges: set[tuple[int, int]], source: int, target: int) -> bool:
    """Whether a path of two or more edges leads from source to target."""
    reached = {b for a, b in edges if a == source} - {target}
    stack = list(reached)
    while stack:
        node = stack.pop()
        for a, b in edges:
            if a == node and b not in reached:
                reached.add(b)
                stack.append(b)
    return target in reached


@pytest.mark.parametrize("gap", [1, 3, contraction._GAP])
@given(size=st.integers(2, 25), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_merges_happen_exactly_where_no_second_path_leads(gap: int, size: int, seed: int) -> None:
    """With small gaps the labels of the order run out and are dealt again all the time."""
    with mock.patch.object(contraction, "_GAP", gap):
        check_merges(size, random.Random(seed))


def check_merges(size: int, rng: random.Random) -> None:
    edges = {tuple(sorted(rng.sample(range(size), 2))) for _ in range(2 * size)}
    predecessors = [[a for a, b in sorted(edges) if b == node] for node in range(size)]
    graph = AcyclicContraction(predecessors)
    candidates = sorted(edges)
    rng.shuffle(candidates)
    for one, two in candidates:
        source, target = graph.find(one), graph.find(two)
        if source == target:
            assert graph.merge(one, two, 10_000) == (True, 1)
            continue
        expected = not second_path(edges, source, target)
        merged, cost = graph.merge(one, two, 10_000)
        assert merged == expected and cost > 0
        renamed = {(graph.find(a), graph.find(b)) for a, b in edges}
        edges = {(a, b) for a, b in renamed if a != b}


@given(st.integers(2, 25), st.integers(0, 2**32), st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_a_search_that_is_cut_off_never_merges_what_it_must_not(
    size: int, seed: int, limit: int
) -> None:
    rng = random.Random(seed)
    edges = {tuple(sorted(rng.sample(range(size), 2))) for _ in range(2 * size)}
    graph = AcyclicContraction([[a for a, b in sorted(edges) if b == n] for n in range(size)])
    for one, two in sorted(edges):
        source, target = graph.find(one), graph.find(two)
        merged, _ = graph.merge(one, two, limit)
        if merged and source != target:
            assert not second_path(edges, source, target)
            renamed = {(graph.find(a), graph.find(b)) for a, b in edges}
            edges = {(a, b) for a, b in renamed if a != b}


def test_a_cyclic_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        AcyclicContraction([[1], [0]])


def test_topological_order_puts_predecessors_first() -> None:
    order = topological_order([[2], [0], [], [1, 0]], [[1, 3], [3], [0], []])
    assert order == [2, 0, 1, 3]
