"""Read and write tensors in TVM's serialization format."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import Any

import numpy as np

from ...errors import SavedModuleError

ARRAY_MAGIC = 0xDD5E40F096B4A13F
_HEADER = struct.Struct("<QQiiiBBH")
_NUMPY = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (1, 1): "bool",
    (6, 8): "bool",
}
_CODES = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "bool": (1, 1),
    "bfloat16": (4, 16),
}


def decode_base64(encoded: Any, where: str) -> bytes:
    """Decode base64; errors mention `where`."""
    try:
        return base64.b64decode(encoded, validate=False)
    except (TypeError, ValueError, binascii.Error) as error:
        raise SavedModuleError(f"{where}: no base64 text: {error}") from None


def decode_array(encoded: Any, where: str) -> np.ndarray:
    data = decode_base64(encoded, where)
    array, _ = read_array(memoryview(data), 0, where)
    return array


def read_array(data: memoryview, offset: int, where: str) -> tuple[np.ndarray, int]:
    """Read the tensor record at an offset; return the tensor and the end offset.

    The record: magic, reserved, device type and id, rank, dtype code, bits and lanes, shape, number
    of bytes, the bytes; little endian. bfloat16 becomes `ml_dtypes.bfloat16`. Raises
    SavedModuleError: the record is truncated or inconsistent.
    """
    if len(data) - offset < _HEADER.size:
        raise SavedModuleError(f"{where}: the tensor record is cut short")
    magic, _, _, _, rank, code, bits, lanes = _HEADER.unpack_from(data, offset)
    offset += _HEADER.size
    if magic != ARRAY_MAGIC:
        raise SavedModuleError(f"{where}: no tensor record: it begins with {magic:#018x}")
    if not 0 <= rank <= 32 or lanes != 1:
        raise SavedModuleError(f"{where}: a tensor of rank {rank} with {lanes} lanes")
    dtype = _dtype(code, bits, where)
    if len(data) - offset < 8 * (rank + 1):
        raise SavedModuleError(f"{where}: the tensor record is cut short")
    shape = struct.unpack_from(f"<{rank}q", data, offset)
    (size,) = struct.unpack_from("<Q", data, offset + 8 * rank)
    offset += 8 * (rank + 1)
    if min(shape, default=0) < 0 or size != math.prod(shape) * dtype.itemsize:
        raise SavedModuleError(f"{where}: {size} bytes for a {dtype} tensor of shape {shape}")
    if len(data) - offset < size:
        raise SavedModuleError(
            f"{where}: the tensor record is cut short: {len(data) - offset} of {size} bytes"
        )
    try:
        array = np.frombuffer(data, dtype, math.prod(shape), offset).reshape(shape)
    except ValueError as error:  # no elements, but other extents exceed memory
        raise SavedModuleError(f"{where}: a tensor of shape {shape}: {error}") from None
    return array, offset + size


def write_array(array: np.ndarray) -> list[bytes]:
    """Tensor record of an array, in chunks."""
    name = str(array.dtype)
    if name not in _CODES:
        raise SavedModuleError(f"arrays of {name} have no form in TVM's files")
    code, bits = _CODES[name]
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return [
        _HEADER.pack(ARRAY_MAGIC, 0, 1, 0, array.ndim, code, bits, 1),
        struct.pack(f"<{array.ndim}qQ", *array.shape, contiguous.nbytes),
        contiguous.tobytes(),
    ]


def encode_array(array: np.ndarray) -> str:
    """Encode a tensor in base64, as in saved modules."""
    return base64.b64encode(b"".join(write_array(array))).decode("ascii")


def bfloat16() -> np.dtype:
    """numpy dtype of bfloat16, from the package ml_dtypes."""
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def _dtype(code: int, bits: int, where: str) -> np.dtype:
    if (code, bits) == (4, 16):
        return bfloat16()
    name = _NUMPY.get((code, bits))
    if name is None:
        raise SavedModuleError(f"{where}: a tensor of type code {code} with {bits} bits")
    return np.dtype(name)
