"""File format of a cached library: its weights, and everything else except its object code.

b"baton library 2\\n", padded to a page
the packed weights (`compiler.runtime.weights`), which are mapped, not read
description     JSON: lowered functions, keys of the kernels, metadata, warnings, checksum
trailer         SHA-256 of the description, its length
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ...runtime import elf

_PAGE = 4096
"""A file system that shares blocks between files can copy the weights without moving a byte."""
_MAGIC = b"baton library 2\n".ljust(_PAGE, b"\0")
_TRAILER = struct.Struct("<32sQ")

WEIGHTS_OFFSET = len(_MAGIC)


def write(
    file: BinaryIO,
    write_weights: Callable[[BinaryIO], int],
    describe: Callable[[], Mapping[str, Any]],
) -> None:
    """Write a complete library file.

    `write_weights` writes the weights and returns their checksum. Then `describe` returns the
    description, JSON-able, to which the checksum is added.
    """
    file.write(_MAGIC)
    checksum = write_weights(file)
    text = json.dumps({**describe(), "weights_checksum": checksum}).encode()
    file.write(text + _TRAILER.pack(hashlib.sha256(text).digest(), len(text)))


def read_description(file: BinaryIO) -> dict[str, Any]:
    """Read and check the description, not the weights. Raises ValueError if it is damaged."""
    end = file.seek(0, os.SEEK_END) - _TRAILER.size
    if end < len(_MAGIC):
        raise ValueError("it is too short")
    file.seek(end)
    digest, length = _TRAILER.unpack(file.read(_TRAILER.size))
    start = end - length
    if start < len(_MAGIC):
        raise ValueError("it is too short")
    file.seek(start)
    text = file.read(length)
    file.seek(0)
    if hashlib.sha256(text).digest() != digest or file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("its description is not what was written")
    description: dict[str, Any] = json.loads(text)
    description["weights_nbytes"] = start - len(_MAGIC)
    return description


def require_weights(file: BinaryIO, description: Mapping[str, Any]) -> None:
    """Raise ValueError unless the weights match their checksum."""
    stop = WEIGHTS_OFFSET + description["weights_nbytes"]
    if elf.range_checksum(file, WEIGHTS_OFFSET, stop) != description["weights_checksum"]:
        raise ValueError("its weights are not what was written")
