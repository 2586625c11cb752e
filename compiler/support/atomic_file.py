"""Atomic file writes: write a temporary file next to the target, then rename it.

A reader sees the old file or the new one, whoever else writes, and whenever a writer is killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .tempdir import TemporaryFolder, open_temp_beside

PathLike = str | os.PathLike[str]


@contextmanager
def replacing(path: PathLike, permissions: int = 0o666) -> Iterator[BinaryIO]:
    """A file to be written, which takes the place of `path` where the block ends without an error.

    A symbolic link at `path` is replaced; what it points to stays as it is.

    `permissions`: of the file, less the process's umask.
    Raises OSError: the folder is missing or can't be written, or the disk is full. Nothing is left
    behind, and an existing file is as it was.
    """
    descriptor, draft = open_temp_beside(os.path.dirname(os.fspath(path)) or ".", permissions)
    lock = os.dup(descriptor)  # held until the file is in its place
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    finally:
        os.close(lock)


def write_file(path: PathLike, content: bytes | str) -> None:
    """Write bytes, or text as UTF-8; raises as `replacing` does."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_write_path(path: PathLike) -> Iterator[Path]:
    """The same for writers that take a path: one of the same file name, in a folder of its own.

    Raises OSError: as for `replacing`, or nothing was written.
    """
    with TemporaryFolder("draft", beside=path) as folder:
        draft = Path(folder, os.path.basename(os.fspath(path)))
        yield draft
        os.replace(draft, path)
