"""What holds for every graph, every claim and both adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from tvm import relax

from compiler.mxnet.symbol import Symbol
from compiler.mxnet.symbol.partition import partition_symbol
from compiler.partition import (
    Strategy,
    list_partitioners,
    partition_with_report,
    register,
    unregister,
)
from compiler.partition import subgraphs as subgraphs_of
from tests.compiler.partition import numpy_relax, numpy_symbol
from tests.compiler.partition.mxnet_oracle import is_acyclic, subgraphs
from tests.compiler.partition.random_graphs import (
    RandomGraph,
    claimed_names,
    random_graphs,
    strategies,
)
from tests.sweep import FACTOR

VALUES = {f"v{i}": np.random.default_rng(i).random((2, 2), "float32") for i in range(3)}


@pytest.fixture(autouse=True)
def _clean_up() -> Iterator[None]:
    yield
    if "random" in list_partitioners():
        unregister("random")


@given(random_graphs(), strategies())
@settings(max_examples=20 * FACTOR, deadline=None)
def test_a_partitioned_symbol_is_the_same_function(
    graph: RandomGraph, chosen: tuple[Strategy, dict[str, str]]
) -> None:
    strategy, options = chosen
    register("random", strategy, replace=True)
    symbol = Symbol.loads(graph.symbol_json())
    result = partition_symbol(symbol, "random", options=options)
    data = json.loads(result.module.tojson())
    found = subgraphs(data)

    assert is_acyclic(data)
    members = [name for each in found.values() for name in each.members]
    assert len(members) == len(set(members))
    assert set(members) <= claimed_names(strategy, symbol.tojson())
    accepted = [set(each.nodes) for each in result.candidates if each.accepted]
    assert sorted(map(sorted, accepted)) == sorted(sorted(e.members) for e in found.values())

    read_back = Symbol.loads(result.module.tojson())
    assert read_back.tojson() == result.module.tojson()
    for mine, original in zip(
        numpy_symbol.evaluate(read_back, VALUES), numpy_symbol.evaluate(symbol, VALUES), strict=True
    ):
        np.testing.assert_array_equal(mine, original)

    again = partition_symbol(symbol, "random", options=options)
    assert again.module.tojson() == result.module.tojson()
    if all(each.accepted for each in result.candidates):
        assert partition_symbol(result.module, "random", options=options).module.tojson() == (
            result.module.tojson()
        )


@given(random_graphs(), strategies())
@settings(max_examples=8 * FACTOR, deadline=None)
def test_a_partitioned_module_is_the_same_function(
    graph: RandomGraph, chosen: tuple[Strategy, dict[str, str]]
) -> None:
    strategy, options = chosen
    register("random", strategy, replace=True)
    mod = graph.relax_module()
    before = tvm_ffi.structural_hash(mod)
    result = partition_with_report(mod, "random", options=options)

    relax.analysis.well_formed(result.module)
    accepted = [each for each in result.candidates if each.accepted]
    members = [name for each in accepted for name in each.nodes]
    assert len(members) == len(set(members))
    assert set(members) <= claimed_names(strategy, result.graph.to_json())
    if options.get("dedup_subgraph") != "True":
        operators = sorted(info.operators for info in subgraphs_of(result.module))
        assert operators == sorted(each.operators for each in accepted)

    read_back = tvm.ir.load_json(tvm.ir.save_json(result.module))
    assert tvm_ffi.structural_equal(read_back, result.module)
    inputs = list(VALUES.values())
    for mine, original in zip(
        numpy_relax.evaluate(read_back, *inputs), numpy_relax.evaluate(mod, *inputs), strict=True
    ):
        np.testing.assert_array_equal(mine, original)

    assert tvm_ffi.structural_hash(mod) == before
    again = partition_with_report(mod, "random", options=options).module
    assert tvm_ffi.structural_equal(again, result.module)
    if len(accepted) == len(result.candidates):
        twice = partition_with_report(result.module, "random", options=options).module
        assert tvm_ffi.structural_equal(twice, result.module)
