"""The index of a log has of each record what the parser reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.errors import RecordError
from compiler.records import log_file
from compiler.records.ansor.record import AnsorRecord
from compiler.records.auto_scheduler.log_index import LogFile
from compiler.records.auto_scheduler.record import Record, scan
from compiler.records.auto_scheduler.template import Template
from tests.compiler.records.ansor.conftest import ORACLE

OLD = AnsorRecord('["12b88bedece6984af589a28b43e0f3c4", [1, 8], [8, 8]]', "llvm", [], (1e-3,))
CPU = {"kind": "llvm", "keys": ["cpu"]}
OWN = Record("12.34.1x8", CPU, [[], []], (2e-3, 1e-3), timestamp=1.5)


def old(**changes):
    return AnsorRecord(**{**vars(OLD), **changes}).to_line()


def own(**changes):
    return Record(**{**vars(OWN), **changes}).to_line()


DAMAGED = [
    "nonsense", "{}", old()[:-9], own()[:-9], own(costs=("x",)),
    old(costs=(1e-3, "x")), old().replace('"v0.6"', '"v0"6"'),
]  # fmt: skip
GOOD = [
    *(ORACLE / "best_records.json").read_text().splitlines()[::9],
    old(), old(error=5), old(costs=(1e-3, 3e-3)), old(target_text="llvm -libs=é"),
    old(workload_key='["matmul", 8, "a\\\\b", "é"]'), old(workload_key="plain"),
    old(target_text=json.dumps({"kind": "llvm"})), old().replace(": ", ":"), " " + old() + "\t",
    own(), own(error=2, costs=()), own(untuned=True), own(workload_key='a"b\\c"'),
    own(target={**CPU, "host": {"kind": "llvm"}}), own(target={**CPU, "mattr": ["{\\"]}),
    own(tir='{"nodes":"\\n"}'), own(template=Template("dense", (1, "x"), [["t", "sp", [1, 8]]])),
    json.dumps(json.loads(own())), own().replace("é", "e"),
]  # fmt: skip
files = st.tuples(
    st.lists(
        st.tuples(
            st.sampled_from([*GOOD, *GOOD, old(), own(), old(), own(), *DAMAGED, "", "# tuned"]),
            st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]),
        ),
        max_size=12,
    ),
    st.booleans(),
    st.booleans(),
)


def indexed_lines(log, n_lines=None):
    for seen in LogFile(log).indexed(n_lines):
        with log.open("rb") as file:
            for at, row in enumerate(zip(seen.keys, map(_target, seen.targets), seen.costs)):
                file.seek(seen.places[at])
                text = file.read(seen.places[at + 1] - seen.places[at]).decode("utf-8-sig")
                yield (seen.line + at, *row, seen.is_ansor, json.loads(text))


def parsed(log, n_lines=None):
    lines = log.read_text("utf-8-sig").split("\n")
    for record in scan(log, n_lines=n_lines):
        line = int(record.source.rpartition(":")[2])
        is_ansor = isinstance(record, AnsorRecord)
        target = _target(record.target_text) if is_ansor else record.target
        row = json.loads(lines[line - 1])
        yield line, record.workload_key, target, record.cost, is_ansor, row


def _target(text):
    return json.loads(text) if text.startswith("{") else text


def outcome(read, log, n_lines, caplog):
    caplog.clear()
    try:
        return list(read(log, n_lines)), caplog.text.partition("log.json")[2]
    except RecordError as error:
        return str(error)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("size", [300, 1 << 18])
@given(file=files, n_lines=st.sampled_from([None, None, 0, 1, 3]))
def test_an_index_has_what_reading_finds(size, file, n_lines, tmp_path_factory, caplog):
    pieces, has_mark, ends = file
    text = "".join(map("".join, pieces))
    log = tmp_path_factory.mktemp("index") / "log.json"
    log.write_bytes((text if ends else text[:-1]).encode("utf-8-sig" if has_mark else "utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "_BLOCK", size)
        found = outcome(indexed_lines, log, n_lines, caplog)
    assert found == outcome(parsed, log, n_lines, caplog)
