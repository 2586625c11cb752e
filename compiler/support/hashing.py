"""Hash of a large file, by all cores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PIECE = 4 << 20


def file_digests(paths: Sequence[Path]) -> list[str]:
    """SHA-256, as hexadecimal digits, over the SHA-256 of each piece of 4 MiB of a file.

    Raises OSError: a file can't be read.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [_digest(path, pool) for path in paths]


def _digest(path: Path, pool: ThreadPoolExecutor) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        starts = range(0, os.fstat(descriptor).st_size, _PIECE)
        pieces = pool.map(lambda start: _piece(descriptor, start), starts)
        return hashlib.sha256(b"".join(pieces)).hexdigest()
    finally:
        os.close(descriptor)


def _piece(descriptor: int, start: int) -> bytes:
    content = bytearray(_PIECE)
    count = os.preadv(descriptor, [content], start)
    return hashlib.sha256(memoryview(content)[:count]).digest()
