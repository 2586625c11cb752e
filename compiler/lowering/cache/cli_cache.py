"""Cache the output of `baton compile`, so that a repeated command needs no TVM.

    place of the model, options --hash--> kept? --> the model's files are what they were?
         --> linked code + weights of the kept library + metadata --> the library's file

The file of a command:

    b"baton command 1\\n"
    SHA-256 of the rest
    length of the description, description     JSON: see `Kept`
    linked code                                the shared library without weights and metadata

The weights come from the library's own file (`library_file`) and are checked while being copied.
The cache entry is found by the model's path and validated by the contents of its files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import LoadError
from ...runtime.metadata import Metadata
from ...runtime.shared_library import explained, write_shared_library
from ...support.atomic_file import atomic_write_path
from ...support.hashing import file_digests
from ..report import Report
from . import kernel_cache, library_file
from .warnings import Message, repeat

_MAGIC = b"baton command 1\n"
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20
_NOT_BY_THE_SYSTEM = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of copies between two file systems, or on an old kernel."""


class _ChangedError(LoadError):
    """The model has changed since the command was cached."""


@dataclass(frozen=True)
class Kept:
    """Inputs and log messages of a command."""

    library: str  # key of the library in the cache
    files: Mapping[str, str]  # digest of each file of the model, by its path
    messages: Sequence[Message]  # warnings


def keep(cache: kernel_cache.KernelCache, key: str, kept: Kept, image: bytes) -> None:
    """Keep a command. `image`: the linked code of its library."""
    text = json.dumps(asdict(kept)).encode()
    content = _LENGTH.pack(len(text)) + text + image
    cache.put_command(key, _MAGIC + hashlib.sha256(content).digest() + content)


def write_again(cache: kernel_cache.KernelCache, key: str, path: Path) -> Metadata | None:
    """Write the library of a cached command to `path`, replacing a file there; return its metadata.

    Returns None, and writes nothing, if there is no such command, the model's files have changed,
    or something is damaged. Raises ExportError: the file can't be written.
    """
    found = _read(cache, key)
    library = cache.open_library(found[0].library) if found else None
    if found is None or library is None:
        return None
    kept, image = found
    with library:
        try:
            description = library_file.read_description(library)
            metadata = _restored(Metadata.from_json(description["metadata"]))
            with (
                explained(path),
                atomic_write_path(path) as draft,
                ThreadPoolExecutor(2, "baton-check") as pool,
            ):
                changed = pool.submit(_have_changed, kept.files)
                weights = partial(_copy_weights, library, description, pool)
                write_shared_library(draft, image, metadata, weights if metadata.params else None)
                if changed.result():
                    raise _ChangedError(f"{', '.join(kept.files)} changed")
        except _ChangedError:
            return None
        except (LoadError, OSError, ValueError) as error:
            kernel_cache.logger.warning(
                "kernel cache: %s is damaged (%s); the library is built again", library.name, error
            )
            return None
    repeat(kept.messages)
    return metadata


def _read(cache: kernel_cache.KernelCache, key: str) -> tuple[Kept, bytes] | None:
    """A cached command, and the linked code of its library."""
    file = cache.open_command(key)
    if file is None:
        return None
    with file:
        try:
            content = file.read()
        except OSError as error:
            kernel_cache.logger.warning("kernel cache: %s: %s", file.name, error.strerror)
            return None
    start = len(_MAGIC) + _DIGEST_BYTES
    digest, rest = content[len(_MAGIC) : start], content[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(rest).digest() != digest:
        kernel_cache.logger.warning("kernel cache: %s is damaged; built again", file.name)
        return None
    (length,) = _LENGTH.unpack_from(rest)
    image = _LENGTH.size + length
    return Kept(**json.loads(rest[_LENGTH.size : image])), rest[image:]


def _restored(metadata: Metadata) -> Metadata:
    """The metadata of a build that restores its library from the cache."""
    report = Report.from_json(metadata.report)
    report.cache, report.seconds = "the library", {}
    return replace(metadata, report=report.to_json())


def _have_changed(files: Mapping[str, str]) -> bool:
    try:
        return file_digests([Path(each) for each in files]) != list(files.values())
    except OSError:
        return True


def _copy_weights(
    library: BinaryIO, description: Mapping[str, Any], pool: ThreadPoolExecutor, target: BinaryIO
) -> int:
    """Copy and check a library's weights; return their checksum. Raises LoadError on a mismatch."""
    start = library_file.WEIGHTS_OFFSET
    stop = start + description["weights_nbytes"]
    checksum = pool.submit(_checksum, library.fileno(), start, stop)
    _copy(library.fileno(), start, stop, target)
    if checksum.result() != description["weights_checksum"]:
        raise LoadError("its weights are not what was written")
    return checksum.result()


def _checksum(descriptor: int, start: int, stop: int) -> int:
    """CRC-32 of a part of a file; leaves the file position unchanged."""
    piece, checksum = memoryview(bytearray(_PIECE)), 0
    while start < stop:
        try:
            count = os.preadv(descriptor, [piece[: stop - start]], start)
        except OSError as error:
            raise LoadError(f"it can't be read: {error.strerror}") from error
        if not count:
            raise LoadError("the file ended early")
        checksum = zlib.crc32(piece[:count], checksum)
        start += count
    return checksum


def _copy(descriptor: int, start: int, stop: int, target: BinaryIO) -> None:
    """Copy a part of a file to the target's position, inside the kernel if supported."""
    target.flush()
    position = target.tell()
    end = position + stop - start
    try:
        while position < end:
            step = os.copy_file_range(
                descriptor, target.fileno(), end - position, stop - (end - position), position
            )
            if not step:
                raise LoadError("the file ended early")
            position += step
    except OSError as error:
        if error.errno not in _NOT_BY_THE_SYSTEM:
            raise
        piece = memoryview(bytearray(_PIECE))
        while position < end:
            read = os.preadv(descriptor, [piece[: end - position]], stop - (end - position))
            if not read:
                raise LoadError("the file ended early") from None
            position += os.pwrite(target.fileno(), piece[:read], position)
    target.seek(position)
