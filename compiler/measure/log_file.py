"""Log files: read in blocks of whole lines, and appended to beside other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import RecordError

BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 18  # stays in the cache while it is cut up


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

    Raises
    ------
    RecordError
        The file can't be written.
    """
    try:
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
    except OSError as error:
        raise RecordError(f"log {str(path)!r} can't be written: {error.strerror}") from error
