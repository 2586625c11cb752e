"""The safetensors format, read and written with numpy: a JSON header, then the arrays' bytes."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import ExportError, FrontendError
from compiler.mxnet_format.params import array_of, stored_bytes
from compiler.support.atomic_file import replacing
from compiler.support.regular_files import os_errors_as, read_regular

_DTYPES = {
    **{"BOOL": "bool", "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_CODES = {name: code for code, name in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, atomically; ExportError for unsupported dtypes and I/O errors."""
    header: dict[str, Any] = {}
    offset = 0
    parts = []
    for name, array in arrays.items():
        code = _CODES.get(str(array.dtype))
        if code is None:
            raise ExportError(f"safetensors files have no dtype {array.dtype} (of {name!r})")
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        header[name] = {
            "dtype": code,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with (
        os_errors_as(ExportError, f"{os.fspath(path)!r} can't be written"),
        replacing(path) as file,
    ):
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read arrays by name, bfloat16 (not in numpy) as float32; FrontendError if damaged."""
    where = f"the parameter file {os.fspath(path)!r}"
    with os_errors_as(FrontendError, f"{where} can't be read"):
        data = read_regular(path)
    if len(data) < 8:
        raise FrontendError(f"{where} is not a safetensors file")
    (length,) = struct.unpack_from("<Q", data)
    if length > min(len(data) - 8, _LONGEST_HEADER):
        raise FrontendError(f"{where} is not a safetensors file, or is truncated")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise FrontendError(f"{where}: the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise FrontendError(f"{where}: the header is not an object")
    body = memoryview(data)[8 + length :]
    return {
        name: _array(body, entry, f"{where}: array {name!r}")
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _array(body: memoryview, entry: Any, where: str) -> np.ndarray:
    try:
        dtype = _DTYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        numbers = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (KeyError, TypeError, ValueError) as error:
        raise FrontendError(f"{where} is not described as it must be") from error
    size = stored_bytes(dtype, shape) if numbers else -1
    if not numbers or end > len(body) or end - begin != size:
        raise FrontendError(f"{where}: {size} bytes of {dtype}{shape} at {begin}..{end}")
    try:
        return array_of(body[begin:end], dtype, shape)
    except ValueError as error:
        raise FrontendError(f"{where} has the shape {str(shape)[:80]}: {error}") from error
