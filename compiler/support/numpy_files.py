"""Read `.npy` and `.npz` files of unknown origin within limits.

Nothing is unpickled. The declared shape is compared with the bytes that are there before memory is
allocated, so a file of a few bytes can't claim terabytes.
"""

from __future__ import annotations

import errno
import io
import math
import os
import tokenize
import zipfile
import zlib
from typing import BinaryIO, cast

import numpy as np

from compiler.support.archive_limits import ArchiveError, max_unpacked, require_unpacked_size
from compiler.support.regular_files import memory_nbytes, open_regular

_FAILURES = (
    *(ValueError, TypeError, KeyError, EOFError, OverflowError, MemoryError, RecursionError),
    *(SyntaxError, tokenize.TokenError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, ArchiveError),
)
_SUFFIX = ".npy"


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Read the array of an `.npy` file.

    Raises OSError: the file can't be read, is no regular `.npy` file, is damaged or holds objects.
    `strerror` says why.
    """
    with open_regular(path) as file:
        try:
            return read_array(file, _size_of(file))
        except _FAILURES as error:
            raise _damaged(file, "an .npy file", error) from error


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz` file by name; raises OSError as `read_npy`."""
    with open_regular(path) as file:
        try:
            return _read_archive(file, _size_of(file))
        except _FAILURES as error:
            raise _damaged(file, "an .npz file", error) from error


def _read_archive(file: BinaryIO, size: int) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        most = min(max_unpacked(size), memory_nbytes())
        require_unpacked_size((info.file_size for info in members), most)
        for info in members:
            name = info.filename.removesuffix(_SUFFIX)
            if name == info.filename:
                raise ValueError(f"its member {name!r} is no {_SUFFIX} file")
            if name in arrays:
                raise ValueError(f"two of its members are called {name!r}")
            with archive.open(info) as member:
                arrays[name] = read_array(cast(BinaryIO, member), info.file_size)
    return arrays


def read_array(file: BinaryIO, size: int) -> np.ndarray:
    """Read the array at the start of a stream of `size` bytes; raises ValueError and others."""
    head = _Recorder(file)
    version = np.lib.format.read_magic(head)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(head)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(head)
    else:
        raise ValueError(f"its format {version} is for structured arrays, which are unsupported")
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are never loaded")
    if any(extent < 0 for extent in shape) or len(shape) > 32:
        raise ValueError(f"it declares the shape {shape!r:.200}")
    declared = math.prod(shape) * dtype.itemsize
    left = size - len(head.data)
    if declared > left or (dtype.itemsize == 0 and math.prod(shape) > size):
        raise ValueError(f"it declares {declared} bytes of values and has {left}")
    if declared > memory_nbytes():
        raise ValueError(f"its {declared} bytes are more than the memory of this machine")
    if isinstance(file, io.BufferedReader):
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
    whole = cast(BinaryIO, _Prefixed(bytes(head.data), file))
    return np.lib.format.read_array(whole, allow_pickle=False)


class _Recorder:
    """A reader that keeps what it read, and rejects headers that are too long."""

    _MOST = 1 << 16

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.data = bytearray()

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._MOST:
            raise ValueError(f"its header has {size} bytes, more than {self._MOST}")
        piece = self._file.read(size)
        self.data += piece
        return piece


class _Prefixed:
    """Bytes that were read already, then the rest of a stream."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self._start, self._file = start, file

    def read(self, size: int = -1) -> bytes:
        piece, self._start = self._start[:size], self._start[size:]
        return piece + self._file.read(size - len(piece)) if len(piece) < size else piece


def _size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _damaged(file: BinaryIO, what: str, error: Exception) -> OSError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return OSError(errno.EINVAL, f"it is not {what} of plain numbers ({lines[0]:.200})", file.name)
