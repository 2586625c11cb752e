"""Read archives of unknown origin within limits.

A tar of a few kilobytes can declare sparse members of terabytes, and compressed archives can expand
a thousandfold. Members are checked before anything is unpacked: number, sizes, kinds, names.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from compiler.errors import BatonError

MAX_MEMBERS = 100_000
_MIN_UNPACKED = 1 << 30
_MAX_RATIO = 100  # of unpacked bytes to packed ones, above the minimum
_DECOMPRESSORS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
_FAILURES = (
    *(OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, OverflowError, MemoryError, RecursionError),
)


class ArchiveError(Exception):
    """An archive that is damaged or exceeds a limit; readers raise their own BatonError for it."""


def max_unpacked(packed: int) -> int:
    """The largest number of unpacked bytes of a compressed archive."""
    return max(_MIN_UNPACKED, _MAX_RATIO * packed)


def require_unpacked_size(sizes: Iterable[int], most: int) -> None:
    """Raise ArchiveError where members are too many or too large together."""
    count = total = 0
    for size in sizes:
        count, total = count + 1, total + size
        if count > MAX_MEMBERS:
            raise ArchiveError(f"it has more than {MAX_MEMBERS} members")
        if size < 0 or total > most:
            raise ArchiveError(f"its members unpack to more than {most} bytes")


def plain_members(archive: tarfile.TarFile, most: int) -> Iterator[tarfile.TarInfo]:
    """The regular members of a tar, each checked before it is yielded; folders are skipped.

    Raises ArchiveError: a member is a link, a device or sparse, its name points outside of the
    archive's folder, or members are too many or unpack to more than `most` bytes.
    """
    total = 0
    for count, member in enumerate(archive, 1):
        if count > MAX_MEMBERS:
            raise ArchiveError(f"it has more than {MAX_MEMBERS} members")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\0" in member.name:
            raise ArchiveError(f"the name of its member {member.name!r} is outside of the archive")
        if member.isdir():
            continue
        if member.issparse():
            raise ArchiveError(
                f"its member {member.name!r} is sparse; pack it without sparse files"
            )
        if not member.isreg():
            raise ArchiveError(f"its member {member.name!r} is no plain file")
        total += member.size
        if member.size < 0 or total > most:
            raise ArchiveError(f"its members unpack to more than {most} bytes")
        yield member


@contextmanager
def opened_tar(file: BinaryIO) -> Iterator[tuple[tarfile.TarFile, int]]:
    """Open a tar, plain or compressed, and the limit of its unpacked bytes.

    Raises ArchiveError: it is no tar, is damaged, or exceeds a limit, also while it is used.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        magic = file.read(6)
        file.seek(0)
        for start, decompress in _DECOMPRESSORS:
            if magic.startswith(start):
                unpacked, most = cast(BinaryIO, decompress(file)), max_unpacked(size)
                break
        else:
            unpacked, most = file, size
        limited = cast(BinaryIO, LimitedReader(unpacked, most))
        with tarfile.open(fileobj=limited, mode="r:") as archive:
            yield archive, most
    except BatonError:
        raise
    except _FAILURES as error:
        raise ArchiveError(str(error) or type(error).__name__) from error


def unpack_tar(file: BinaryIO, folder: Path) -> None:
    """Write the regular members of a tar into a folder; raises ArchiveError as `opened_tar`."""
    with opened_tar(file) as (archive, most):
        most = min(most, shutil.disk_usage(folder).free)
        for member in plain_members(archive, most):
            target = folder / PurePosixPath(member.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            content = cast(BinaryIO, archive.extractfile(member))
            # "x": a second member of that name is an error.
            with content, target.open("xb") as output:
                shutil.copyfileobj(content, output)


class LimitedReader(io.RawIOBase):
    """A seekable reader that fails beyond a position, instead of allocating or reading on."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        super().__init__()
        self._file, self._most = file, most

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            # Archives end with blocks of zeros, which a truncated one lacks.
            self._require(offset - tarfile.RECORDSIZE)
        return self._file.seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        position = self._file.tell()
        if size is None or size < 0:
            size = self._most - position + 1
        self._require(position + size - tarfile.RECORDSIZE)
        return self._file.read(size)

    def _require(self, position: int) -> None:
        if position > self._most:
            raise ArchiveError(f"it declares content beyond the limit of {self._most} bytes")
