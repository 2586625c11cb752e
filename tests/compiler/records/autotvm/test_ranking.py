"""Opening a log reads of each line only what ranks it, and reads it as a parser would."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.errors import RecordError
from compiler.records import log_file
from compiler.records.autotvm.ranking import rank_line, rank_log, ranked
from compiler.records.autotvm.record import parse_line, read_lines, scan

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
        ("dense_pack", "dense\x1fpack"),
        ('"sp"', '"s\x05p"'),
        ('["tile', '["t\x05le'),
        ("0.18.0", "0.18\x01"),
    ],
)
def test_a_line_that_is_broken_elsewhere_is_no_record(part, broken):
    good = line("dense_pack.x86", [1, 2])
    rank_line(good)
    with pytest.raises(RecordError):
        rank_line(good.replace(part, broken))


GOOD = line("dense_pack.x86", [["TENSOR", [1, 8], "float32"], None, "float32"])
LINES = [
    *[GOOD] * 4,
    line("dense_pack.x86", [1, 2], (1e-3, 3e-3)),
    line("dense_small_batch.cuda", [2]),
    line("dense_pack.x86", ["é"]),
    line("dense_pack.x86", ["{}"]),
    line("dense_pack.x86", ["a\\"]),
    GOOD.replace("1.25, ", "1.25,"),
    GOOD.replace("0, 1.25", "4, 1.25"),
    GOOD.replace("llvm -keys", "llvm -libs=é -keys"),
    GOOD.replace("llvm -keys", "toaster -keys"),
    GOOD.replace("0.0001", "1e999"),
    GOOD.replace("[-1, 8]", "[-1, x]"),
    GOOD.replace("dense_pack.x86", "dense\\u005fpack.x86"),
    GOOD[:-40],
    "nonsense",
    "# tuned",
    "",
    "  " + GOOD,
]
files = st.lists(
    st.tuples(st.sampled_from(LINES), st.sampled_from(["\n"] * 4 + ["\r\n", "\r"])), max_size=12
)


def outcome(records, caplog):
    caplog.clear()
    try:
        return list(records), caplog.text.partition("a.log")[2]
    except RecordError as error:
        return str(error)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("size", [300, 1 << 18])
@given(pieces=files, mark=st.booleans(), ends=st.booleans(), strict=st.booleans())
def test_a_log_ranks_as_the_parser_reads_it(
    size, pieces, mark, ends, strict, tmp_path_factory, caplog
):
    text = "".join(map("".join, pieces))
    log = tmp_path_factory.mktemp("rank") / "a.log"
    log.write_bytes((text if ends else text[:-1]).encode("utf-8-sig" if mark else "utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "_BLOCK", size)
        found = outcome(rank_log(log, strict), caplog)
    expected = map(ranked, scan(read_lines(log), "a.log", strict, parse_line))
    assert found == outcome(expected, caplog)
