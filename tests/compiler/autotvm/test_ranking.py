"""Opening a log reads of each line only what ranks it, and reads it as a parser would."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.autotvm.ranking import rank_line, ranked
from compiler.autotvm.record import parse_line
from compiler.errors import RecordError

numbers = st.integers(-3, 10**6)
strings = st.sampled_from(["NCHW16c", "float32", "e", "a, b", "5E3"])
scalars = st.one_of(numbers, st.none(), st.booleans(), st.floats(0.5, 9), strings)
shapes = st.lists(st.integers(1, 4096), min_size=1, max_size=5)
tensors = st.tuples(st.just("TENSOR"), shapes, st.sampled_from(["float32", "int8", "uint8"]))
arguments = st.lists(st.one_of(tensors, scalars, st.lists(numbers, max_size=4)), max_size=6)
tasks = st.sampled_from(["conv2d_NCHWc.x86", "dense_pack.x86", "dense_small_batch.cuda", "a b"])


def line(task, args, costs=(1e-4,), **spelling):
    row = {
        "input": ["llvm -keys=cpu -mcpu=znver4", task, args, {}],
        "config": {"index": -1, "code_hash": None, "entity": [["tile_x", "sp", [-1, 8]]]},
        "result": [list(costs), 0, 1.25, 1.6e9],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    return json.dumps(row, **spelling)


@given(task=tasks, args=arguments, costs=st.lists(st.floats(1e-7, 10), min_size=1, max_size=3))
def test_a_line_ranks_as_the_parser_reads_it(task, args, costs):
    for text in (line(task, args, costs), line(task, args, costs, separators=(",", ":"))):
        assert rank_line(text, 7) == ranked(parse_line(text, 7))


@pytest.mark.parametrize(
    "args",
    ["[1, ]", "[, 1]", "[1, , 2]", "[[1, 2]", "[1, 2]]", '["a]', "[01x]", "[1 2]", "{}", "x"],
)
def test_arguments_that_are_no_list_are_no_record(args):
    rank_line(line("dense_pack.x86", [1, 2]))
    text = line("dense_pack.x86", ["HERE"]).replace('["HERE"]', args)
    with pytest.raises(RecordError):
        rank_line(text)


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        ("[-1, 8]", "[-1, x]"),
        ('"index": -1', '"index": q'),
        ("1.25", "1.2.5"),
        ("[-1, 8]]]", "[-1, 8]]"),
    ],
)
def test_a_line_that_is_broken_elsewhere_is_no_record(part, broken):
    good = line("dense_pack.x86", [1, 2])
    rank_line(good)
    with pytest.raises(RecordError):
        rank_line(good.replace(part, broken))
