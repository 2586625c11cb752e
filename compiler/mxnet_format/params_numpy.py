"""The parameter files of MXNet 2.0: a zip of numpy files, or one bare numpy file."""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np

from compiler.errors import FrontendError
from compiler.support.numpy_files import read_array

from .sparse_array import SparseArray

_ZIP = b"PK"
_NPY = b"\x93NUMPY"
_SPARSE_PARTS = ("data", "indices", "indptr", "shape", "format")


def is_numpy_file(data: bytes) -> bool:
    """Whether the first bytes are those of a zip or of a numpy file."""
    return data[:2] == _ZIP or data[:6] == _NPY


def read_numpy_file(data: bytes, where: str) -> tuple[dict[str, Any], np.ndarray | None]:
    """Read a zip of numpy files (name to array or `SparseArray`), or one array (second result).

    Raises FrontendError if the file is truncated, damaged or holds objects.
    """
    try:
        if data[:6] == _NPY:
            return {}, _read_array(data)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if len(set(names)) != len(names):
                raise ValueError("two members have the same name")
            members = {name: _read_member(archive, name, len(data)) for name in names}
            return _join_sparse(members), None
    except FrontendError:
        raise
    except (
        *(ValueError, KeyError, OSError, EOFError, OverflowError, MemoryError),
        *(
            tokenize.TokenError,
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
            RuntimeError,
            SyntaxError,
            TypeError,
        ),
    ) as error:
        raise FrontendError(f"{where} is damaged: {error or type(error).__name__}") from error


def _read_member(archive: zipfile.ZipFile, name: str, size: int) -> np.ndarray:
    info = archive.getinfo(name)
    # MXNet stores members as they are, so that none can be larger than the file.
    if not name.endswith(".npy") or info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"its member {name!r} is not an uncompressed .npy file")
    if info.file_size > size:
        raise ValueError(f"its member {name!r} claims to have {info.file_size} bytes")
    return _read_array(archive.read(info))


def _read_array(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    array = read_array(stream, len(data))
    if stream.tell() != len(data):
        raise ValueError("bytes follow the end of an array")
    if array.dtype.hasobject or array.dtype.kind not in "biufU":
        raise ValueError(f"an array has the dtype {array.dtype}")
    return array


def _join_sparse(members: dict[str, np.ndarray]) -> dict[str, Any]:
    """Put the parts of sparse arrays together: `<name>/data.npy`, `<name>/indices.npy`, ..."""
    named: dict[str, Any] = {}
    for member, array in members.items():
        name = member.removesuffix(".npy")
        owner, _, part = name.rpartition("/")
        if part not in _SPARSE_PARTS or f"{owner}/format.npy" not in members:
            if array.dtype.kind == "U":
                raise ValueError(f"its member {member!r} is text")
            named[name] = array
            continue
        if part != "format":
            continue
        parts = {key: members.get(f"{owner}/{key}.npy") for key in _SPARSE_PARTS}
        storage = str(array)
        values, indices, shape = parts["data"], parts["indices"], parts["shape"]
        if storage not in ("csr", "row_sparse") or values is None or indices is None:
            raise ValueError(f"the sparse array {owner!r} is incomplete")
        if shape is None:
            raise ValueError(f"the sparse array {owner!r} has no shape")
        extents = tuple(int(extent) for extent in shape.reshape(-1))
        named[owner] = SparseArray(storage, extents, values, indices, parts["indptr"])
    return named


def write_numpy_file(names: list[str], arrays: list[np.ndarray]) -> bytes:
    """A zip of numpy files; without names, a bare numpy file, or members named 0, 1, ..."""
    stream = io.BytesIO()
    if not names and len(arrays) == 1:
        np.lib.format.write_array(stream, arrays[0], allow_pickle=False)
        return stream.getvalue()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in zip(names or map(str, range(len(arrays))), arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", member.getvalue())
    return stream.getvalue()
