"""`relay.save_param_dict` and `relay.load_param_dict`: binary serialization of parameters."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import SavedModuleError
from .arrays import read_array, write_array

PARAMS_MAGIC = 0xF7E58D4F05049CB7


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """Serialize parameters in TVM's parameter file format.

    `params`: numpy arrays or TVM tensors.
    """
    arrays = {name: _as_numpy(value) for name, value in params.items()}
    parts = [struct.pack("<QQQ", PARAMS_MAGIC, 0, len(arrays))]
    for name in arrays:
        encoded = name.encode()
        parts += [struct.pack("<Q", len(encoded)), encoded]
    parts.append(struct.pack("<Q", len(arrays)))
    for array in arrays.values():
        parts += write_array(array)
    return bytearray(b"".join(parts))


def load_param_dict(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Load parameters from the output of `save_param_dict` as TVM tensors by name.

    Raises SavedModuleError: the data is damaged or not a parameter file.
    """
    import tvm

    return {name: tvm.runtime.tensor(array) for name, array in read_params(data).items()}


def read_params(data: bytes | bytearray | memoryview) -> dict[str, np.ndarray]:
    """Load parameters as numpy arrays."""
    view = memoryview(data).cast("B") if not isinstance(data, memoryview) else data
    where = "the parameters"
    magic, _, count = _unpack("<QQQ", view, 0, where)
    if magic != PARAMS_MAGIC:
        raise SavedModuleError(f"no parameter file: it begins with {magic:#018x}")
    offset, names = 24, []
    if count > len(view):
        raise SavedModuleError(f"{where}: {count} names in {len(view)} bytes")
    for _ in range(count):
        (size,) = _unpack("<Q", view, offset, where)
        raw = bytes(view[offset + 8 : offset + 8 + size])
        if len(raw) != size:
            raise SavedModuleError(f"{where}: cut short in the names")
        try:
            names.append(raw.decode())
        except UnicodeDecodeError:
            raise SavedModuleError(f"{where}: a name that is not UTF-8 text") from None
        offset += 8 + size
    (tensors,) = _unpack("<Q", view, offset, where)
    if tensors != count:
        raise SavedModuleError(f"{where}: {count} names and {tensors} tensors")
    offset += 8
    found = {}
    for name in names:
        found[name], offset = read_array(view, offset, f"the parameter {name!r}")
    return found


def _unpack(layout: str, view: memoryview, offset: int, where: str) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, view, offset)
    except struct.error:
        raise SavedModuleError(f"{where}: cut short after {len(view)} bytes") from None


def _as_numpy(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.asarray(value.numpy())
