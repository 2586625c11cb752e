"""Reads of a log's lines only what ranks their records; the few that are wanted are read later.

A log of a million records is opened for the few that a build asks for. Lines as Ansor's writer and
Baton's lay them out are cut up here; any other line is parsed in full.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..autotvm.record import SkippedLines
from ..errors import RecordError
from .ansor import record as ansor
from .record import AnyRecord, parse_line

_BOM = b"\xef\xbb\xbf"

# A line as `Record.to_line` lays it out; the trace is not looked at.
_HEAD = re.compile(
    rb'\{"v":1,"kind":"auto_scheduler","workload":\{"key":"([^"\\]*)"'
    rb'(?:,"tir":"(?:[^"\\]|\\.)*")?\},'
    rb'"target":(\{[^\\]*?\}),"costs":\[([-+.eE\d,]*)\],"error":(\d+),"timestamp":[-+.eE\d]+,'
    rb'(?:"untuned":true,)?(?:"template":\{[^{}]*\},)?"trace":\['
)


class Glance(NamedTuple):
    """What of a line decides whether it is worth reading.

    Attributes
    ----------
    line, offset, length : int
        Number of the line, and its bytes in the file.
    workload_key : str
    target : str
        As JSON or as text.
    cost : float
        Mean seconds; infinity for a failed measurement.
    is_ansor : bool
    """

    line: int
    offset: int
    length: int
    workload_key: str
    target: str
    cost: float
    is_ansor: bool


_new = tuple.__new__  # of a named tuple without the check of how many fields there are


class LogFile:
    """A log on disk, of which single lines are read.

    Attributes
    ----------
    name : str
        Without its folder.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path).absolute()
        self.name = self.path.name
        self._state = ""

    @property
    def digest(self) -> str:
        """Changes with the file and how much of it was glanced at.

        Hashing the lines would take as long as glancing at them; so this is the file's identity
        when it was opened.
        """
        return f"{self.path} {self._state}"

    def glances(self, n_lines: int | None = None) -> Iterator[Glance]:
        """What ranks each record, failed measurements included.

        Parameters
        ----------
        n_lines : int, optional
            Stop after so many records.

        Raises
        ------
        RecordError
            The file can't be read, or no line of it is a record.
        """
        skipped, count, offset, raw = SkippedLines(self.name), 0, 0, b"\n"
        for number, raw in enumerate(self._raw_lines(), 1):
            start, offset = offset, offset + len(raw)
            bare = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
            if not bare or bare.startswith(b"#"):
                continue
            if count == n_lines:
                break
            try:
                ranked = self._rank(bare, number)
            except RecordError as error:
                skipped.add(number, str(error))
                continue
            count += 1
            yield _new(Glance, (number, start, len(raw), *ranked))
        skipped.report(count, raw.endswith(b"\n"), "auto_scheduler record")

    def _raw_lines(self) -> Iterator[bytes]:
        """Lines with their ends, which may be those of any system."""
        try:
            with open(self.path, "rb") as file:
                stat = os.fstat(file.fileno())
                self._state = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
                for raw in file:
                    if b"\r" in raw[:-2]:
                        yield from raw.splitlines(keepends=True)
                    else:
                        yield raw
        except OSError as error:
            raise RecordError(
                f"auto_scheduler log {str(self.path)!r} can't be read: {error.strerror}"
            ) from error

    def _rank(self, bare: bytes, number: int) -> tuple[str, str, float, bool]:
        """Key, target, cost, and whether a line is Ansor's."""
        if seen := ansor.glance(bare):
            return (*seen, True)
        if (head := _HEAD.match(bare)) and bare.endswith(b"]}"):
            costs = [float(cost) for cost in head[3].split(b",") if cost]
            cost = sum(costs) / len(costs) if costs and head[4] == b"0" else math.inf
            return head[1].decode(), head[2].decode(), cost, False
        record = parse_line(_text(bare), f"auto_scheduler:{self.name}:{number}")
        if isinstance(record, ansor.AnsorRecord):
            return record.workload_key, record.target_text, record.cost, True
        return record.workload_key, json.dumps(record.target), record.cost, False

    def read(self, line: int, offset: int, length: int) -> AnyRecord:
        """One record.

        Raises
        ------
        RecordError
            What the glance did not look at is damaged, or the file has changed since.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(offset)
                raw = file.read(length)
        except OSError as error:
            raise RecordError(f"{self.name}:{line}: can't be read: {error.strerror}") from error
        try:
            return parse_line(_text(raw).strip(), f"auto_scheduler:{self.name}:{line}")
        except RecordError as error:
            raise RecordError(f"{self.name}:{line}: {error}") from error


def _text(raw: bytes) -> str:
    return raw.removeprefix(_BOM).decode("utf-8", "surrogateescape")
