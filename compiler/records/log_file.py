"""Log files: read in blocks of whole lines, and appended to beside other processes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from compiler.support.regular_files import os_errors_as

from ..errors import RecordError

BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 18  # stays in the cache while it is cut up
_LINE_FEED = 10


class Run(NamedTuple):
    """Consecutive lines of one layout, or of none."""

    layout: int  # position of the layout; -1 for lines that have none of them
    line: int  # number of the first line
    block: bytes
    # Places in the block: where the first line begins, and behind each line's end
    ends: Sequence[int]
    offset: int  # of the block in the file
    # What the groups of the layout's expression matched in each line: a tuple, or bytes where there
    # is one group; of a line without a layout, the line
    fields: list[Any]

    def text(self, at: int) -> bytes:
        """The `at`-th line, with its end."""
        return self.block[self.ends[at] : self.ends[at + 1]]


def line_layout(pattern: str) -> re.Pattern[bytes]:
    """Expression of a whole line for `runs`.

    A string is fastest as `[^"]*`, which may run over the line's end: `runs` notices.
    """
    return re.compile(rf"^{pattern}\r?$".encode(), re.MULTILINE)


def runs(file: BinaryIO, layouts: Sequence[re.Pattern[bytes]]) -> Iterator[Run]:
    """All lines of a file, in order, cut up by the first layout that each has.

    An expression goes over a whole block at once. Where it matches as often as the block has
    lines, it matches each of them; any other block is read line by line. Lines end as they do on
    any system. A line that is not all ASCII has no layout.

    `layouts`: of `line_layout`.
    """
    line, offset, last = 1, 0, 0
    for block in read_blocks(file):
        plain = block.isascii() and block.count(b"\r") == block.count(b"\r\n")
        found = layouts[last].findall(block) if plain else []
        if found and len(found) == block.count(b"\n") + (not block.endswith(b"\n")):
            feeds = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED)
            ends = [0, *(feeds + 1).tolist()]
            if ends[-1] < len(block):
                ends.append(len(block))
            yield Run(last, line, block, ends, offset, found)
            line += len(found)
        else:
            for run in _runs_of_block(block, line, offset, layouts):
                yield run
                line, last = run.line + len(run.fields), max(run.layout, 0)
        offset += len(block)


def _runs_of_block(
    block: bytes, line: int, offset: int, layouts: Sequence[re.Pattern[bytes]]
) -> Iterator[Run]:
    last, ends, fields = -1, [0], list[Any]()  # of the lines that are not yet given out
    for text in block.splitlines(keepends=True):
        layout, found = _layout(text, layouts)
        if fields and layout != last:
            yield Run(last, line, block, ends, offset, fields)
            line, ends, fields = line + len(fields), ends[-1:], []
        last = layout
        ends.append(ends[-1] + len(text))
        fields.append(found)
    yield Run(last, line, block, ends, offset, fields)


def _layout(text: bytes, layouts: Sequence[re.Pattern[bytes]]) -> tuple[int, Any]:
    """Position of a line's layout, and its fields; -1 and the line if it has none of them."""
    if text.isascii():
        for position, pattern in enumerate(layouts):
            if (match := pattern.match(text)) is not None:
                groups = match.groups(b"")
                return position, groups if len(groups) > 1 else groups[0]
    return -1, text


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    """The file from where it is, cut behind line feeds; a line's end may be missing in the last."""
    rest = b""
    while block := file.read(_BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest


def append_lines(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Append lines to a file, each by one write; the file and its folder are made if missing.

    A process that is killed leaves at most the beginning of one line, which the next writer ends.

    Raises RecordError: the file can't be written.
    """
    with os_errors_as(RecordError, f"log {str(path)!r} can't be written"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # O_APPEND makes each write land behind those of other processes. Read access is for
        # the look at the last byte: a writer that was killed may have left half a line.
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            size = os.lseek(descriptor, 0, os.SEEK_END)
            broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            start = "\n" if broken else ""
            for text in lines:
                line = f"{start}{text}\n".encode()
                if os.write(descriptor, line) != len(line):
                    raise RecordError(f"log {str(path)!r}: the disk is full")
                start = ""
        finally:
            os.close(descriptor)
