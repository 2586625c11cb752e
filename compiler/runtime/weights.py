"""Writes the weights of a library as one block of bytes, and maps such a block from a file.

Each weight starts at the offset that the metadata state, a multiple of 64 bytes from the start
of the block. The mapping is private and writable: pages come from the file as they are touched
and are shared between processes; a write changes the writer's copy of that page, not the file.
Pages are large where the system has such: weights that only pass once a run, as in products of a
few rows, come from memory a tenth faster.
"""

from __future__ import annotations

import contextlib
import mmap
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from compiler.errors import LoadError
from compiler.runtime.metadata import ALIGNMENT, Metadata
from compiler.tvm_workarounds.fast_import import tvm


def write_weights(stream: BinaryIO, metadata: Metadata, params: Mapping[str, Any]) -> int:
    """Write the block of weights.

    `stream`: written from its current position on; `metadata.weights_nbytes` bytes. `metadata`:
    names and offsets. `params`: on any device. Returns the CRC-32 of the bytes written.
    """
    checksum = written = 0
    for info in metadata.params:
        data = _bytes_of(params[info.name], info.nbytes)
        for piece in (bytes(info.offset - written), data):
            stream.write(piece)
            checksum = zlib.crc32(piece, checksum)
        written = info.offset + info.nbytes
    padding = bytes(metadata.weights_nbytes - written)
    stream.write(padding)
    return zlib.crc32(padding, checksum)


def map_weights(file: BinaryIO, offset: int, metadata: Metadata) -> dict[str, Any]:
    """Map the block of weights that starts at `offset` of an open file.

    Returns tensors on the CPU that alias the mapping and keep it alive.
    Raises LoadError: the block can't be mapped, or another tool moved it to an offset that kernels
    can't use.
    """
    if not metadata.weights_nbytes:  # tensors without elements
        return {
            info.name: tvm.runtime.empty(info.static_shape, info.dtype) for info in metadata.params
        }
    if offset % ALIGNMENT:
        raise LoadError(
            f"{file.name}: the weights start at byte {offset}, which is not a multiple of "
            f"{ALIGNMENT}; a tool has rewritten the library, so export it again"
        )
    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    length = offset - start + metadata.weights_nbytes
    try:
        mapping = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY, offset=start)
    except (OSError, ValueError) as error:
        raise LoadError(f"{file.name}: can't map {length} bytes of weights: {error}") from error

    with contextlib.suppress(OSError):  # a kernel without large pages
        mapping.madvise(mmap.MADV_HUGEPAGE)

    params = {}
    for info in metadata.params:
        position = offset - start + info.offset
        data = np.frombuffer(mapping, np.uint8, count=info.nbytes, offset=position)
        tensor = tvm.runtime.from_dlpack(data)
        params[info.name] = tensor._create_view(info.static_shape, info.dtype)
    return params


def _bytes_of(tensor: Any, nbytes: int) -> memoryview:
    """The bytes of a tensor, copied only from another device's memory."""
    if tensor.device.type != "cpu":
        tensor = tensor.copyto(tvm.cpu())
    return np.from_dlpack(tensor._create_view((nbytes,), "uint8")).data
