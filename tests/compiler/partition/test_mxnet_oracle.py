"""Graphs that the real MXNet partitioned: the same subgraphs, and always the right numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.mxnet.symbol import Symbol
from compiler.partition.regions import ANY, UNMARKED, find_regions
from tests.compiler.partition.mxnet_growth import mxnet_groups
from tests.compiler.partition.mxnet_oracle import (
    cases,
    is_acyclic,
    outside,
    register_by_name,
    share_of,
    subgraphs,
    unregister_by_name,
)
from tests.compiler.partition.numpy_symbol import OPERATORS, evaluate
from tests.compiler.partition.test_regions import group_of
from tests.compiler.partition.test_regions import is_acyclic as is_acyclic_contracted

CASES = cases()
RUNS = [(name, run) for name, case in CASES.items() for run in case.runs]
RIGHT = [(name, run) for name, run in RUNS if CASES[name].runs[run]["status"] == "ok"]
BUILT = [
    *("a06_diamond_one_arm_left", "a13_dup_outputs_adjacent", "a16_multi_output_detour"),
    *("a17_batchnorm_aux", "a22_residual_pool_outside", "a28_attention", "a29_inception"),
    *("a40_cycle_between_two_subgraphs", "a42_equal_node_names", "random_61"),
]
"""Graphs that are also compiled and run; the program `mxnet_oracle` does that with all."""


@pytest.fixture(autouse=True)
def _backend() -> Iterator[None]:
    register_by_name()
    yield
    unregister_by_name()


@pytest.mark.parametrize(("name", "run"), RIGHT)
def test_a_graph_has_the_subgraphs_that_mxnet_gave_it(name: str, run: str) -> None:
    case = CASES[name]
    record = case.runs[run]
    symbol = case.partitioned(run)
    result = json.loads(symbol.tojson())
    assert subgraphs(result) == subgraphs(record["partitioned_symbol"])
    assert outside(result) == outside(record["partitioned_symbol"])
    assert result["heads"] == record["partitioned_symbol"]["heads"]
    if "list_arguments" in record:
        assert symbol.list_arguments() == record["list_arguments"]
        assert symbol.list_auxiliary_states() == record["list_auxiliary_states"]


@pytest.mark.parametrize(("name", "run"), [each for each in RUNS if each not in RIGHT])
def test_a_graph_that_mxnet_broke_is_partitioned_all_the_same(name: str, run: str) -> None:
    case = CASES[name]
    result = json.loads(case.partitioned(run).tojson())
    assert is_acyclic(result)
    assert share_of(case.symbol, subgraphs(result)) == sum(
        node["op"] in case.op_names for node in case.symbol["nodes"]
    ) / sum(node["op"] != "null" for node in case.symbol["nodes"])


def _is_simple(symbol: dict) -> bool:
    known = {*OPERATORS, "null", "Concat", "SliceChannel"}
    return all(node["op"] in known for node in symbol["nodes"])


@pytest.mark.parametrize(
    ("name", "run"), [each for each in RUNS if _is_simple(CASES[each[0]].symbol)]
)
def test_a_partitioned_graph_computes_what_mxnet_computed(name: str, run: str) -> None:
    case = CASES[name]
    saved = Symbol.loads(case.partitioned(run).tojson())
    for mine, theirs in zip(evaluate(saved, case.inputs), case.outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BUILT)
def test_a_partitioned_graph_is_compiled_to_the_same_numbers(name: str) -> None:
    case = CASES[name]
    saved = Symbol.loads(case.partitioned("dedup").tojson())
    for mine, theirs in zip(saved.eval(**case.inputs), case.outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@given(st.integers(2, 60), st.sampled_from([3, 10, 60]), st.random_module())
@settings(max_examples=300, deadline=None)
def test_regions_are_those_of_mxnet_or_whole_ones_of_them_joined(
    size: int, reach: int, seed: object
) -> None:
    import random

    predecessors = [
        [random.randrange(max(0, node - reach), node) for _ in range(random.randint(1, 2))]
        if node
        else []
        for node in range(size)
    ]
    selected = [random.random() < 0.6 for _ in range(size)]
    theirs = mxnet_groups(predecessors, selected)
    mine = find_regions(predecessors, [ANY if wanted else UNMARKED for wanted in selected])
    own = group_of(size, mine)
    assert is_acyclic_contracted(predecessors, own)
    if is_acyclic_contracted(predecessors, group_of(size, theirs)):
        assert all(len({own[node] for node in group}) == 1 for group in theirs)
