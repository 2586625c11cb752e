"""Open input files that must be regular files.

Opening a FIFO waits for a writer, and reading a device may never end. Paths of input files come
from users and models, so every reader opens them here. Errors are OSError with a `strerror` that
says what to do; readers turn them into the BatonError of their format.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from compiler.errors import BatonError

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


@contextmanager
def os_errors_as(kind: type[BatonError], what: str) -> Iterator[None]:
    """Raise `kind`, with the reason after `what`, for an OSError of the block."""
    try:
        yield
    except BatonError:  # an ExportError is an OSError too
        raise
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from error


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading, without waiting for anything else.

    Raises OSError: the file can't be opened or is not a regular file.
    """
    name = os.fspath(path)
    try:
        # O_NONBLOCK does not wait for the writer of a FIFO; regular files ignore it.
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            reason = "it is not a regular file; copy its content to a file first"
            raise OSError(errno.EINVAL, reason, name) from error
        raise
    except ValueError as error:  # a NUL character or a lone surrogate
        raise OSError(errno.EINVAL, f"its path is invalid ({error})", name) from error
    return _as_regular(descriptor, name)


def open_inside(folder: str | os.PathLike[str], location: str) -> BinaryIO:
    """Open a regular file below a folder that an untrusted file names.

    No link can lead out of the folder: symbolic links below it and files with several hard links
    are rejected. The checks hold for the returned file, whatever happens to its path later.

    Raises OSError: the location is not below the folder, or the file can't be opened or is not
    regular.
    """
    name = os.path.join(folder, location)
    parts = os.path.normpath(location).split(os.sep)
    if not location or os.path.isabs(location) or parts[0] in (os.curdir, os.pardir):
        raise OSError(errno.EINVAL, f"its location {location!r} is not a file below {folder}", name)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    try:
        parent = os.open(folder, flags | os.O_DIRECTORY)
        try:
            for part in parts[:-1]:
                child = os.open(part, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
                os.close(parent)
                parent = child
            descriptor = os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        finally:
            os.close(parent)
    except ValueError as error:  # a NUL character or a lone surrogate
        raise OSError(errno.EINVAL, f"its path is invalid ({error})", name) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = "its path has a symbolic link; copy the file into the folder"
            raise OSError(errno.EINVAL, reason, name) from error
        raise
    file = _as_regular(descriptor, name)
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise OSError(errno.EINVAL, "it has several hard links; copy the file", name)
    return file


def _as_regular(descriptor: int, name: str) -> BinaryIO:
    """The open file of a descriptor; closes the descriptor and raises if it is not regular."""
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            kind = next((text for test, text in _KINDS if test(mode)), "no regular file")
            reason = f"it is {kind}; copy its content to a regular file first"
            raise OSError(errno.EINVAL, reason, name)
        # Unlike os.fdopen, this gives the file its path as `name`.
        return open(name, "rb", opener=lambda *_: descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file whole.

    Raises OSError: as `open_regular`, or the file does not fit into memory.
    """
    with open_regular(path) as file:
        return read_rest(file)


def read_rest(file: BinaryIO) -> bytes:
    """Read an open regular file from its position on; raises OSError as `read_regular`."""
    size = os.fstat(file.fileno()).st_size
    if size > memory_nbytes():
        raise OSError(
            errno.EFBIG,
            f"its {size} bytes are more than the memory of this machine; check that it is not a "
            "sparse file",
            file.name,
        )
    try:
        return file.read()
    except MemoryError as error:
        raise OSError(errno.ENOMEM, f"its {size} bytes do not fit into memory", file.name) from (
            error
        )


def memory_nbytes() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_PAGE = 'an HTML page; download the file itself (often behind a link "raw")'
_STAND_INS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (b"<!doctype html", _PAGE),
    (b"<html", _PAGE),
)
_KNOWN_STARTS = (
    *_STAND_INS,
    (b"<?xml", "an XML file"),
    (b"\x7felf", "a library or a program (ELF)"),
    (b"\x1f\x8b", "compressed by gzip; unpack it first"),
    (b"pk\x03\x04", "a zip archive, as PyTorch's .pt and numpy's .npz are"),
    (b"\x93numpy", "an array of numpy (.npy)"),
    (b"\x80\x02", "a Python pickle, as old PyTorch checkpoints are"),
    (b"\x89hdf", "an HDF5 file, as Keras models are; export it as ONNX"),
)


def foreign_kind(head: bytes) -> str:
    """Identify a file by its first bytes, with advice for error messages; "" if unknown."""
    return _kind(head, _KNOWN_STARTS)


def stand_in(head: bytes) -> str:
    """Identify a Git LFS pointer or an HTML page in place of a file, as `foreign_kind` does."""
    return _kind(head, _STAND_INS)


def _kind(head: bytes, starts: Sequence[tuple[bytes, str]]) -> str:
    start = head[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return next((kind for known, kind in starts if start.startswith(known)), "")
