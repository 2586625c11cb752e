"""Reads of a log's lines only what ranks their records; the few that are wanted are read later.

A log of a million records is opened for the few that a build asks for. Lines as Ansor's writer and
Baton's lay them out are cut up a block at a time; any other line is parsed in full.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compiler.support.regular_files import open_regular, os_errors_as

from ...errors import RecordError
from ..ansor import record as ansor
from ..autotvm.record import NUMBER, SkippedLines
from ..log_file import BOM, Run, line_layout, runs
from ..untrusted_json import mean_seconds
from .record import AnyRecord, parse_line

# A line as `Record.to_line` lays it out: key, target, costs and error number. The trace is not
# looked at.
_LAYOUT = line_layout(
    r'\{"v":1,"kind":"auto_scheduler","workload":\{"key":"([^"]*)"'
    r'(?:,"tir":"[^"\\]*(?:\\.[^"\\]*)*")?\},'
    rf'"target":(\{{[^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)*\}}),"costs":\[((?:{NUMBER}(?:,{NUMBER})*)?)\],'
    rf'"error":(\d{{1,9}}),"timestamp":{NUMBER},'
    r'(?:"untuned":true,)?("template":\{[^{}]*\},)?"trace":\[.*\]\}'
)
_LAYOUTS = (ansor.LAYOUT, _LAYOUT)
_ANSORS = 0


class IndexedLines(NamedTuple):
    """Ranking data of consecutive lines, enough to decide which records to parse."""

    is_ansor: bool
    line: int  # number of the first line
    places: Sequence[int]  # bytes in the file where the first line begins, and where each ends
    keys: Sequence[str]  # workload keys
    targets: Sequence[str]  # as JSON or as text
    costs: Sequence[float]  # mean seconds; infinity for a failed measurement
    templates: Sequence[bool] = ()  # whether each names a template; empty if none does


_MOST_KEPT = 32 << 20
"""Bytes of the largest log that is kept as a whole, so that it may change while it is in use."""


class LogFile:
    """A log, of which single lines are read. `name`: without its folder.

    A log of at most 32 MiB is read once. A larger one must stay as it is while it is in use.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path).absolute()
        self.name = self.path.name
        self._state = ""
        self._kept: bytes | None = None

    @property
    def digest(self) -> str:
        """The opened file's identity and indexed size: hashing lines would take as long."""
        return f"{self.path} {self._state}"

    def indexed(self, n_lines: int | None = None) -> Iterator[IndexedLines]:
        """Yield ranking data of the records in line order, failed measurements included.

        `n_lines`: stop after this many records.
        Raises RecordError: the file can't be read, or no line of it is a record.
        """
        skipped, count, raw = SkippedLines(self.name), 0, b"\n"
        for run in self._runs():
            left = None if n_lines is None else n_lines - count
            if run.layout >= 0 and left != 0 and (seen := _cut(run, left)) is not None:
                count += len(seen.keys)
                yield seen
                continue
            for at in range(len(run.fields)):
                raw = run.text(at)
                bare = (raw.removeprefix(BOM) if run.line + at == 1 else raw).strip()
                if not bare or bare.startswith(b"#"):
                    continue
                if count == n_lines:
                    break
                try:
                    seen = self._parsed(bare, run, at)
                except RecordError as error:
                    skipped.add(run.line + at, str(error))
                    continue
                count += 1
                yield seen
            if count == n_lines:
                break
        skipped.report(count, raw.endswith((b"\n", b"\r")), "auto_scheduler record")

    def _runs(self) -> Iterator[Run]:
        with (
            os_errors_as(RecordError, f"auto_scheduler log {str(self.path)!r} can't be read"),
            open_regular(self.path) as file,
        ):
            stat = os.fstat(file.fileno())
            self._state = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
            if stat.st_size <= _MOST_KEPT:
                self._kept = file.read(_MOST_KEPT + 1)
                yield from runs(io.BytesIO(self._kept), _LAYOUTS)
            else:
                yield from runs(file, _LAYOUTS)

    def _parsed(self, bare: bytes, run: Run, at: int) -> IndexedLines:
        """Ranking data of a line of any layout."""
        line = run.line + at
        record = parse_line(_text(bare), f"auto_scheduler:{self.name}:{line}")
        if isinstance(record, ansor.AnsorRecord):
            target, is_ansor, templates = record.target_text, True, []
        else:
            target, is_ansor = json.dumps(record.target), False
            templates = [record.template is not None]
        places = [run.offset + run.ends[at], run.offset + run.ends[at + 1]]
        key, cost = record.workload_key, record.cost
        return IndexedLines(is_ansor, line, places, [key], [target], [cost], templates)

    def read(self, line: int, offset: int, length: int) -> AnyRecord:
        """Read one record; RecordError if its unindexed part is damaged or the file has changed."""
        raw = self._bytes(line, offset, length)
        try:
            return parse_line(_text(raw).strip(), f"auto_scheduler:{self.name}:{line}")
        except RecordError as error:
            raise RecordError(f"{self.name}:{line}: {error}") from error

    def _bytes(self, line: int, offset: int, length: int) -> bytes:
        if self._kept is not None:
            return self._kept[offset : offset + length]
        with (
            os_errors_as(RecordError, f"{self.name}:{line}: can't be read"),
            open_regular(self.path) as file,
        ):
            file.seek(offset)
            return file.read(length)


def _text(raw: bytes) -> str:
    return raw.removeprefix(BOM).decode("utf-8", "surrogateescape")


def _cut(run: Run, most: int | None) -> IndexedLines | None:
    """Ranking data of the first lines of a run; None if one of them needs the full parser."""
    keys, targets, costs, errors, *others = zip(*run.fields[:most])
    text, named = b"\n".join(keys), {target: target.decode() for target in targets}
    if text.count(b"\\") != text.count(b'\\"') or any("\\" in target for target in named.values()):
        return None
    return IndexedLines(
        run.layout == _ANSORS, run.line, [run.offset + end for end in run.ends],
        text.replace(b'\\"', b'"').decode().split("\n"), [named[target] for target in targets],
        list(map(_cost, costs, errors)), [text != b"" for each in others for text in each],
    )  # fmt: skip


def _cost(costs: bytes, error: bytes) -> float:
    if error != b"0" or not costs:
        return math.inf
    if b"," not in costs:
        seconds = float(costs)
        return seconds if seconds > 0.0 else math.inf
    return mean_seconds(list(map(float, costs.split(b","))))
