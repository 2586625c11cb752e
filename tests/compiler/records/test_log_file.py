"""A log is cut into lines as any text reader does it, whole blocks at a time."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.records import log_file
from compiler.records.log_file import line_layout, runs

LAYOUTS = (line_layout(r'a"([^"]*)"(x?)'), line_layout(r"b(\d+)"))
PIECES = ['a"1"', 'a"2"x', 'a"\n"', 'a"é"', "b12", "b3", "c", "", " b4", 'a"', '"', "\ufeffb5"]
texts = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(["\n"] * 4 + ["\r\n", "\r"])))


@settings(deadline=None)
@pytest.mark.parametrize("size", [8, 20, 1 << 18])
@given(pieces=texts, ends=st.booleans())
def test_runs_are_the_lines_of_the_file(size, pieces, ends):
    text = "".join(map("".join, pieces))
    raw = (text if ends else text.rstrip("\r\n")).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "_BLOCK", size)
        found = list(runs(io.BytesIO(raw), LAYOUTS))
    lines = [
        (run.line + at, run.offset + run.ends[at], run.text(at), run.layout, run.fields[at])
        for run in found
        for at in range(len(run.fields))
    ]
    bare = [each for _, _, each, _, _ in lines]
    assert bare == raw.splitlines(keepends=True)
    offset = 0
    for position, (number, place, each, layout, fields) in enumerate(lines, 1):
        assert (number, place) == (position, offset)
        offset += len(each)
        matches = [each.isascii() and pattern.fullmatch(each.rstrip(b"\n")) for pattern in LAYOUTS]
        assert layout == next((at for at, match in enumerate(matches) if match), -1)
        if layout == 0:
            assert fields == matches[0].groups()
        elif layout == 1:
            assert fields == matches[1][1]
        else:
            assert fields == each
