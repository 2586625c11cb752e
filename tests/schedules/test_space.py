"""Config spaces: indices, candidates, and what templates may define."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm.target import Target

import schedules.x86.templates.spaces  # noqa: F401  (registers the knobs)
from compiler.autotvm import operators
from compiler.records.autotvm.workload import to_tuple
from schedules.config import ConfigEntity, InstantiationError, OtherOptionEntity
from schedules.fallback_config import FallbackConfigEntity
from schedules.space import ConfigSpace, space_of

INDICES = Path(__file__).parents[1] / "oracle" / "autotvm" / "config_indices.json.gz"
LLVM = Target({"kind": "llvm", "mcpu": "skylake-avx512"})


@st.composite
def spaces(draw):
    space = ConfigSpace()
    for knob in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["split", "verbose", "reorder", "annotate", "knob"]))
        name = f"knob{knob}"
        if kind in ("split", "verbose"):
            policy = "factors" if kind == "split" else "verbose"
            outputs = draw(st.integers(2, 3))
            space.define_split(name, draw(st.integers(1, 48)), policy=policy, num_outputs=outputs)
        elif kind == "reorder":
            space.define_reorder(name, list("abc"), draw(st.sampled_from(["all", "identity"])))
        elif kind == "annotate":
            space.define_annotate(name, list("ab"), "try_unroll_vec")
        else:
            space.define_knob(name, draw(st.lists(st.integers(), min_size=1, unique=True)))
    return space


@given(spaces(), st.randoms())
def test_an_index_and_its_config_are_each_others_inverse(space, rng):
    index = rng.randrange(len(space))
    config = space.get(index)
    assert config.index == index
    assert space.index_of(config) == index
    assert space.knob2point(space.point2knob(index)) == index
    assert space.index_of(ConfigEntity.from_entity(config.to_entity())) == index


@given(spaces())
def test_the_knob_defined_first_varies_fastest(space):
    strides = [1]
    for dim in space.dims:
        strides.append(strides[-1] * dim)
    for knob, (dim, stride) in enumerate(zip(space.dims, strides)):
        if dim > 1:
            changed = [a != b for a, b in zip(space.point2knob(0), space.point2knob(stride))]
            assert [i for i, differs in enumerate(changed) if differs] == [knob]
    assert strides[-1] == len(space)


@given(st.integers(1, 200), st.integers(2, 4))
def test_factors_of_a_split_multiply_to_a_divisor(extent, outputs):
    space = ConfigSpace()
    space.define_split("tile", extent, num_outputs=outputs)
    for entity in space.space_map["tile"]:
        assert len(entity.size) == outputs and entity.size[0] == -1
        product = 1
        for factor in entity.size[1:]:
            product *= factor
        assert extent % product == 0


def test_indices_of_genuine_records_mean_the_same_config():
    with gzip.open(INDICES) as file:
        tasks = json.load(file)
    assert len(tasks) == 75
    for name, args, configs in tasks:
        operator = next(o for o in operators.OPERATORS.values() if _computes(o.name, name))
        space = space_of(name, operator.workload(name, to_tuple(args)), LLVM)
        for index, entity in configs:
            assert space.get(index).to_entity() == entity, (name, args, index)
            assert space.index_of(ConfigEntity.from_entity(entity)) == index


def _computes(operator, task):
    return operator.removeprefix("nn.") in task or (operator == "nn.dense" and "dense" in task)


def test_an_explicit_quotient_is_the_same_as_minus_one():
    space = ConfigSpace()
    space.define_split("tile", 12)
    old = ConfigEntity.from_entity([["tile", "sp", [3, 4]]])
    assert space.get(space.index_of(old)).to_entity() == [["tile", "sp", [-1, 4]]]


def test_a_config_that_is_not_in_the_space_has_no_index():
    space = ConfigSpace()
    space.define_split("tile", 12)
    assert space.index_of(ConfigEntity.from_entity([["tile", "sp", [-1, 5]]])) is None
    assert space.index_of(ConfigEntity.from_entity([["other", "ot", 1]])) is None


def test_a_filter_refuses_configs_and_leaves_indices_alone():
    space = ConfigSpace()
    space.define_knob("a", [1, 2, 3])
    space.define_knob("b", [1, 2, 3])
    space.multi_filter(lambda config: config.val("a") < config.val("b"))
    valid = [index for index in range(space.range_length) if space.is_index_valid(index)]
    assert valid == [3, 6, 7]
    assert len(space) == 3 and space.subrange_length(0, 4) == 1
    assert [space.get_next_index(index) for index in (0, 3, 6, 7)] == [3, 6, 7, None]
    assert space.get_next_index(7, -1) == 6 and space.get_next_index(7, -1, start=7) is None
    assert {space.random_walk(6, random.Random(seed)) for seed in range(20)} <= {3, 7}
    assert space.get_rand_index(to_exclude=[3, 7]) == 6
    with pytest.raises(IndexError, match="0 to 10"):
        space.subrange_length(0, 10)
    assert sorted(space.sample_ints(10, random.Random(0))) == valid
    assert space.sample_ints(10, random.Random(0), without=valid) == []
    with pytest.raises(IndexError, match="refused"):
        space.get(0)


def test_a_knob_that_is_defined_again_replaces_the_first_and_keeps_its_place():
    space = ConfigSpace()
    space.define_knob("a", [1, 2, 3])
    space.define_knob("b", [1, 2])
    space.define_knob("a", [1, 2])
    assert space.dims == [2, 2] and list(space) == ["a", "b"]


def test_a_fallback_keeps_what_a_template_sets_and_splits_within_limits():
    config = FallbackConfigEntity()
    config.define_split("tile", 128, num_outputs=3)
    config.define_knob("unroll", [False, True])
    assert config.is_fallback and not config["unroll"].val
    config.fallback_split("tile", [-1, 8, 4])
    config["unroll"] = OtherOptionEntity(True)
    config.define_split("tile", 128, num_outputs=3)
    assert config["tile"].size == [4, 8, 4] and config["unroll"].val
    config.define_split("odd", 49, num_outputs=3)
    config.fallback_split("odd", [-1, 8, 4])
    assert config["odd"].size == (7, 7, 1)
    for limits in ([-1, 1, 0], [8, 4]):
        with pytest.raises(RuntimeError, match="odd"):
            config.fallback_split("odd", limits)


def test_a_config_prints_as_tvms_tuners_did():
    space = ConfigSpace()
    space.define_split("tile", 12)
    space.define_knob("unroll", [0, 512])
    assert str(space.get(7)) == "[('tile', [-1, 2]), ('unroll', 512)],None,7"


def test_samples_are_different_and_none_that_is_known():
    space = ConfigSpace()
    space.define_knob("a", list(range(1000)))
    known = set(range(500))
    found = space.sample_ints(100, random.Random(1), known)
    assert len(set(found)) == 100 and not known.intersection(found)


def test_reorders_of_an_interval_leave_the_rest_in_place():
    space = ConfigSpace()
    space.define_reorder("order", list("abcd"), "interval_all", interval=(1, 3))
    assert [e.perm for e in space.space_map["order"]] == [(0, 1, 2, 3), (0, 2, 1, 3)]


def test_interleaved_chains_keep_their_order():
    space = ConfigSpace()
    space.define_reorder(
        "order", list("abxy"), "interleave", spatial=[["a", "b"]], reduce=[["x", "y"]]
    )
    perms = [e.perm for e in space.space_map["order"]]
    assert len(perms) == len(set(perms)) == 6
    assert all(p.index(0) < p.index(1) and p.index(2) < p.index(3) for p in perms)


def test_at_most_one_axis_is_vectorized():
    space = ConfigSpace()
    space.define_annotate("ann", list("abc"), "try_unroll_vec")
    assert len(space.space_map["ann"]) == 20
    assert all(e.anns.count("vec") <= 1 for e in space.space_map["ann"])


def test_a_knob_without_candidates_is_an_error():
    space = ConfigSpace()
    with pytest.raises(IndexError, match="tile"):
        space.define_split("tile", 12, filter=lambda entity: False)
    with pytest.raises(ValueError, match="policy"):
        space.define_split("tile", 12, policy="nonsense")


def test_an_implementation_without_knobs_has_no_space():
    with pytest.raises(InstantiationError, match="no knobs"):
        space_of("unheard_of.x86", None, LLVM)
