"""Properties of regions on random graphs, and the shapes of graphs known to break partitioners."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.partition import regions
from compiler.partition.contraction import topological_order
from compiler.partition.regions import ANY, UNMARKED, find_regions

Graph = tuple[list[list[int]], list[int]]


@st.composite
def graphs(draw: st.DrawFn, marks: Sequence[int] = (UNMARKED, ANY)) -> Graph:
    """Predecessor lists and marks of a random acyclic graph."""
    size = draw(st.integers(1, 40))
    reach = draw(st.sampled_from([2, 5, 40]))
    rng = random.Random(draw(st.integers(0, 2**32)))
    predecessors = [
        [rng.randrange(max(0, node - reach), node) for _ in range(rng.randint(0, 3))]
        if node
        else []
        for node in range(size)
    ]
    return predecessors, [rng.choice(marks) for _ in range(size)]


def group_of(size: int, found: list[list[int]]) -> list[int]:
    group = list(range(size))
    for region in found:
        for node in region:
            group[node] = region[0]
    return group


def is_acyclic(predecessors: list[list[int]], group: list[int]) -> bool:
    edges: list[set[int]] = [set() for _ in group]
    for node, sources in enumerate(predecessors):
        edges[group[node]] |= {group[source] for source in sources} - {group[node]}
    successors: list[list[int]] = [[] for _ in group]
    for node, sources in enumerate(edges):
        for source in sources:
            successors[source].append(node)
    try:
        topological_order([sorted(sources) for sources in edges], successors)
    except ValueError:
        return False
    return True


ALL_MARKS = (UNMARKED, ANY, 0, 1, 2)


@given(graphs(ALL_MARKS))
@settings(max_examples=300, deadline=None)
def test_contracting_all_regions_together_leaves_an_acyclic_graph(graph: Graph) -> None:
    predecessors, marks = graph
    found = find_regions(predecessors, marks)
    assert is_acyclic(predecessors, group_of(len(marks), found))


@given(graphs(ALL_MARKS))
@settings(max_examples=200, deadline=None)
def test_regions_hold_every_marked_node_once_and_no_other(graph: Graph) -> None:
    predecessors, marks = graph
    found = find_regions(predecessors, marks)
    members = sorted(node for region in found for node in region)
    assert members == [node for node, mark in enumerate(marks) if mark != UNMARKED]
    assert all(region == sorted(region) for region in found)
    assert [region[0] for region in found] == sorted(region[0] for region in found)


@given(graphs(ALL_MARKS))
@settings(max_examples=200, deadline=None)
def test_a_region_is_connected_and_has_at_most_one_number(graph: Graph) -> None:
    predecessors, marks = graph
    for region in find_regions(predecessors, marks):
        assert len({marks[node] for node in region} - {ANY}) <= 1
        reached, rest = {region[0]}, set(region[1:])
        while rest:
            near = {
                node
                for node in rest
                if reached & set(predecessors[node])
                or any(node in predecessors[other] for other in reached)
            }
            assert near, f"{sorted(rest)} hang on nothing"
            reached |= near
            rest -= near


@given(graphs(ALL_MARKS))
@settings(max_examples=200, deadline=None)
def test_no_two_adjacent_regions_could_be_one(graph: Graph) -> None:
    predecessors, marks = graph
    found = find_regions(predecessors, marks)
    group = group_of(len(marks), found)
    numbers = {region[0]: {marks[node] for node in region} - {ANY} for region in found}
    for node, sources in enumerate(predecessors):
        for one in {group[source] for source in sources} - {group[node]}:
            two = group[node]
            if one not in numbers or two not in numbers or len(numbers[one] | numbers[two]) > 1:
                continue
            joined = [one if g == two else g for g in group]
            assert not is_acyclic(predecessors, joined), f"{one} and {two} could be joined"


@given(graphs(ALL_MARKS))
@settings(max_examples=50, deadline=None)
def test_the_same_graph_gives_the_same_regions(graph: Graph) -> None:
    predecessors, marks = graph
    again = [list(reversed(sources)) * 2 for sources in predecessors]
    assert find_regions(predecessors, marks) == find_regions(predecessors, marks)
    if all(mark < 0 for mark in marks):  # the order of operands has no influence either
        assert find_regions(again, marks) == find_regions(predecessors, marks)


@given(graphs(ALL_MARKS), st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_an_exhausted_budget_leaves_smaller_regions_but_no_cycle(graph: Graph, budget: int) -> None:
    predecessors, marks = graph
    full = regions._BUDGET, regions._BUDGET_PER_NODE, regions._LEAST_SEARCH
    regions._BUDGET, regions._BUDGET_PER_NODE, regions._LEAST_SEARCH = budget, 0, 4
    try:
        found = find_regions(predecessors, marks)
    finally:
        regions._BUDGET, regions._BUDGET_PER_NODE, regions._LEAST_SEARCH = full
    assert is_acyclic(predecessors, group_of(len(marks), found))
    members = sorted(node for region in found for node in region)
    assert members == [node for node, mark in enumerate(marks) if mark != UNMARKED]


@given(graphs(), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_regions_do_not_cross_domains(graph: Graph, parts: int) -> None:
    predecessors, marks = graph
    domains = [node * parts // len(marks) for node in range(len(marks))]
    for region in find_regions(predecessors, marks, domains):
        assert len({domains[node] for node in region}) == 1


def test_a_detour_through_an_unmarked_node_splits_the_join_off() -> None:
    # x -> e -> {c, s} -> p with c unmarked
    predecessors = [[], [0], [1], [1], [2, 3]]
    assert find_regions(predecessors, [-2, -1, -2, -1, -1]) == [[1, 3], [4]]


def test_two_convex_regions_that_would_feed_each_other_are_cut() -> None:
    # 0 -> 1 (out) -> 2 and 3 -> 4 (out) -> 5, with 0-5 and 3-2 adjacent: {0, 5} and {2, 3} are each
    # convex, but contracted together they feed each other.
    predecessors = [[], [0], [1, 3], [], [3], [4, 0]]
    order = [0, 3, 1, 4, 2, 5]
    position = {node: index for index, node in enumerate(order)}
    renumbered = [[position[source] for source in predecessors[node]] for node in order]
    marks = [-2 if node in (1, 4) else -1 for node in order]
    found = find_regions(renumbered, marks)
    assert is_acyclic(renumbered, group_of(6, found))
    assert len(found) == 3


def test_a_component_without_conflict_stays_whole_beside_one_with_a_conflict() -> None:
    # 0 -> 1(out) -> 2, 0 -> 2 is cut; 3 -> 4 -> 5 is one chain of its own.
    predecessors = [[], [0], [0, 1], [2], [3], [4]]
    marks = [-1, -2, -1, -2, -1, -1]
    assert find_regions(predecessors, marks) == [[0], [2], [4, 5]]


def test_nodes_of_different_numbers_stay_apart_and_any_joins_the_first() -> None:
    chain = [[], [0], [1], [2]]
    assert find_regions(chain, [0, 0, 1, 1]) == [[0, 1], [2, 3]]
    assert find_regions(chain, [0, -1, -1, 1]) == [[0, 1, 2], [3]]
    assert find_regions(chain, [-1, 0, -1, 0]) == [[0, 1, 2, 3]]


def test_a_number_whose_nodes_are_not_connected_gives_several_regions() -> None:
    assert find_regions([[], [0], [1]], [5, -2, 5]) == [[0], [2]]


def test_a_number_that_cannot_be_one_convex_region_is_split() -> None:
    # 0 -> 1 -> 2 with 0 -> 2, node 1 has another number
    assert find_regions([[], [0], [0, 1]], [3, 4, 3]) == [[0], [1], [2]]


def test_everything_marked_is_one_region_and_nothing_marked_is_none() -> None:
    chain = [[], [0], [0, 1], [2, 0]]
    assert find_regions(chain, [-1] * 4) == [[0, 1, 2, 3]]
    assert find_regions(chain, [-2] * 4) == []
    assert find_regions([], []) == []


def test_a_long_chain_and_a_wide_fan_do_not_exhaust_the_stack() -> None:
    size = 20_000
    chain = [[node - 1] if node else [] for node in range(size)]
    assert len(find_regions(chain, [-1] * size)) == 1
    assert len(find_regions(chain, [-1, -2] * (size // 2))) == size // 2
    fan = [[0] if node else [] for node in range(size)]
    assert len(find_regions(fan, [-1] * size)) == 1
