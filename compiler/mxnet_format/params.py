"""MXNet's parameter files: the legacy list format, and the numpy files of 2.0.

The legacy format is little-endian throughout: a list of array records, then a list of names.
"""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.errors import ExportError, FrontendError
from compiler.support.atomic_file import replacing
from compiler.support.numpy_files import read_array
from compiler.support.regular_files import os_errors_as, read_regular

from .attributes import DTYPES

_LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_SPARSE_AUXILIARIES = {0: 0, 1: 1, 2: 2}
"""Storage type (dense, row_sparse, csr) to its number of index arrays."""

_MOST_DIMS = 32
"""numpy's own limit before 2.0."""


_LARGEST = 1 << 28
"""Bytes of a dense array that any file may ask for."""
_SPARSEST = 1000
"""Times its stored bytes that a larger dense array may take: a damaged shape asks for more."""


class SparseArray(NamedTuple):
    """A sparse array as stored in files."""

    storage: str  # "row_sparse" or "csr"
    shape: tuple[int, ...]  # of the dense array
    data: np.ndarray
    indices: np.ndarray  # row numbers (row_sparse) or column numbers (csr)
    indptr: np.ndarray | None = None  # where each row starts in `indices`, and the end (csr)

    def dense(self) -> np.ndarray:
        """The dense array; FrontendError for indices outside the shape and excessive shapes."""
        size = math.prod(self.shape) * self.data.dtype.itemsize
        if size > max(_LARGEST, _SPARSEST * (self.data.nbytes + self.indices.nbytes)):
            raise FrontendError(
                f"a {self.storage} array of shape {self.shape} has {self.data.size} values; as a "
                f"dense one it would take {size} bytes"
            )
        try:
            result = np.zeros(self.shape, self.data.dtype)
            if self.storage == "row_sparse":
                _check_within(self.indices, self.shape[0])
                result[self.indices] = self.data.reshape((-1, *self.shape[1:]))
            else:
                pointers = np.zeros(1, "int64") if self.indptr is None else self.indptr
                if len(self.shape) != 2 or pointers.shape != (self.shape[0] + 1,):
                    raise ValueError("the row pointers do not fit the shape")
                _check_within(self.indices, self.shape[1])
                rows = np.repeat(np.arange(self.shape[0]), np.diff(pointers))
                result[rows, self.indices] = self.data
        except (ValueError, IndexError, MemoryError) as error:
            raise FrontendError(
                f"a {self.storage} array of shape {self.shape} is damaged: {error}"
            ) from error
        return result


def _check_within(indices: np.ndarray, extent: int) -> None:
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= extent):
        raise ValueError(f"an index lies outside 0..{extent - 1}")


_ZIP = b"PK"
_NPY = b"\x93NUMPY"
_SPARSE_PARTS = ("data", "indices", "indptr", "shape", "format")


def is_numpy_file(data: bytes) -> bool:
    """Whether the first bytes are those of a zip or of a numpy file."""
    return data[:2] == _ZIP or data[:6] == _NPY


def read_numpy_file(data: bytes, where: str) -> tuple[dict[str, Any], np.ndarray | None]:
    """Read a zip of arrays or (second result) one; FrontendError if damaged or holding objects."""
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


def load_params(source: str | os.PathLike[str] | bytes) -> dict[str, np.ndarray] | list[np.ndarray]:
    """Read a parameter file of any MXNet version.

    Parameters
    ----------
    source
        The file's path, or its bytes.

    Returns
    -------
    dict or list
        Name (in model files "arg:<name>" or "aux:<name>") to array; a list if the file has no
        names. Sparse arrays come dense; bfloat16, which numpy lacks, comes as float32. An array
        that was never filled comes as an empty one of shape (0,).

    Raises
    ------
    FrontendError
        The file can't be read, is truncated or damaged.
    """
    data, where = _bytes_of(source)
    if is_numpy_file(data):
        named, unnamed = read_numpy_file(data, where)
        return (
            {name: _dense(value) for name, value in named.items()} if unnamed is None else [unnamed]
        )
    arrays, names = _read_list(_Reader(data, where))
    dense = [_dense(value) for value in arrays]
    return dict(zip(names, dense)) if names else dense


def save_params(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    format: str = "list",
) -> None:
    """Write a parameter file that MXNet and `load_params` read.

    Parameters
    ----------
    path
        The file; it is replaced as a whole or not at all.
    arrays
        Name to array, or arrays without names.
    format
        "list": the legacy format, read by every MXNet. "npz": the format of 2.0.

    Raises
    ------
    ExportError
        The format or a dtype is unknown, or the file can't be written.
    """
    if format not in ("list", "npz"):
        raise ExportError(f"unknown format {format!r} of parameter files; use 'list' or 'npz'")
    names = list(arrays) if isinstance(arrays, Mapping) else []
    values = list(arrays.values()) if isinstance(arrays, Mapping) else list(arrays)
    if format == "npz":
        data = write_numpy_file(names, [np.asarray(value) for value in values])
    else:
        data = _write_list(names, [np.asarray(value) for value in values])
    with (
        os_errors_as(ExportError, f"the parameter file {os.fspath(path)!r} can't be written"),
        replacing(path) as file,
    ):
        file.write(data)


def split_prefixes(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Arguments and auxiliary states, without "arg:", "aux:"; unprefixed names are arguments."""
    args, aux = {}, {}
    for name, value in arrays.items():
        if name.startswith("aux:"):
            aux[name[4:]] = value
        else:
            args[name.removeprefix("arg:")] = value
    return args, aux


def _bytes_of(source: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, "the parameter data"
    where = f"the parameter file {os.fspath(source)!r}"
    with os_errors_as(FrontendError, f"{where} can't be read"):
        return read_regular(source), where


def _dense(value: Any) -> np.ndarray:
    return value.dense() if isinstance(value, SparseArray) else value


class _Reader:
    """Takes numbers off the front of a file's bytes."""

    def __init__(self, data: bytes, where: str):
        self.data = memoryview(data)
        self.where = where
        self.offset = 0

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.offset:
            raise self.error(f"it ends before the {size} bytes at offset {self.offset}")
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def number(self, code: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def error(self, why: str) -> FrontendError:
        return FrontendError(f"{self.where} is damaged or no parameter file: {why}")


def _read_list(reader: _Reader) -> tuple[list[Any], list[str]]:
    magic, _, count = (reader.number("Q") for _ in range(3))
    if magic != _LIST_MAGIC:
        raise reader.error(f"it starts with {magic:#x}, not {_LIST_MAGIC:#x}")
    if count > len(reader.data):
        raise reader.error(f"it claims to hold {count} arrays")
    arrays = [_read_record(reader) for _ in range(count)]
    named = reader.number("Q")
    if named not in (0, count):
        raise reader.error(f"it has {named} names for {count} arrays")
    names: list[str] = []
    for _ in range(named):
        raw = bytes(reader.take(reader.number("Q")))
        try:
            names.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise reader.error(f"the name {raw!r} is not UTF-8") from error
    if len(set(names)) != len(names):
        raise reader.error("two arrays have the same name")
    if reader.offset != len(reader.data):
        raise reader.error(f"{len(reader.data) - reader.offset} bytes follow its end")
    return arrays, names


def _read_record(reader: _Reader) -> np.ndarray | SparseArray:
    start = reader.offset
    version = reader.number("I")
    if version not in (_V1, _V2, _V3):  # the oldest form starts with the number of dimensions
        oldest = _read_extents(reader, version, "I")
        return _read_dense(reader, oldest) if oldest else np.empty((0,), "float32")
    storage = 0 if version == _V1 else reader.number("i")
    if storage not in _SPARSE_AUXILIARIES or (version == _V3 and storage):
        raise reader.error(f"the array at offset {start} has storage type {storage}")
    stored = _read_shape(reader) if storage else None
    shape = _read_shape(reader)
    unknown = shape is None or any(extent < 0 for extent in shape)
    if unknown and version != _V3:
        raise reader.error(f"the array at offset {start} has the shape {shape}")
    if unknown or shape is None or (version != _V3 and not shape):
        return np.empty((0,), "float32")
    if not storage:
        return _read_dense(reader, shape)
    return _read_sparse(reader, storage, stored or (), shape)


def _read_sparse(
    reader: _Reader, storage: int, stored: tuple[int, ...], shape: tuple[int, ...]
) -> SparseArray:
    dtype = _read_type(reader)
    auxiliaries = []
    for _ in range(_SPARSE_AUXILIARIES[storage]):
        kind = _dtype(reader, reader.number("i"))
        auxiliaries.append((kind, _read_shape(reader) or ()))
    data = _read_data(reader, dtype, stored)
    # A row_sparse array has row numbers; csr has row pointers, then column numbers.
    indices = [_read_data(reader, *auxiliary) for auxiliary in auxiliaries]
    if any(array.dtype.kind not in "iu" for array in indices):
        raise reader.error("the indices of a sparse array are not integers")
    if storage == 1:
        return SparseArray("row_sparse", shape, data, indices[0])
    return SparseArray("csr", shape, data, indices[1], indices[0])


def _read_dense(reader: _Reader, shape: tuple[int, ...]) -> np.ndarray:
    return _read_data(reader, _read_type(reader), shape)


def _read_type(reader: _Reader) -> str:
    reader.take(8)  # the device that the array was on
    return _dtype(reader, reader.number("i"))


def _dtype(reader: _Reader, code: int) -> str:
    if not 0 <= code < len(DTYPES):
        raise reader.error(f"there is no dtype of code {code}")
    return DTYPES[code]


def _read_shape(reader: _Reader) -> tuple[int, ...] | None:
    """A shape of 64-bit extents; None for an unknown number of dimensions."""
    ndim = reader.number("i")
    return None if ndim < 0 else _read_extents(reader, ndim, "q")


def _read_extents(reader: _Reader, ndim: int, code: str) -> tuple[int, ...]:
    if ndim > _MOST_DIMS:
        raise reader.error(f"an array has {ndim} dimensions")
    return tuple(reader.number(code) for _ in range(ndim))


def _read_data(reader: _Reader, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if any(extent < 0 for extent in shape):
        raise reader.error(f"an array has the shape {shape}")
    raw = reader.take(stored_bytes(dtype, shape))
    try:
        return array_of(raw, dtype, shape)
    except ValueError as error:
        raise reader.error(f"an array has the shape {shape}") from error


def stored_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of an array in a file."""
    return math.prod(shape) * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


def array_of(raw: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of a file's array, bfloat16 (not in numpy) as float32; ValueError for its shape."""
    stored = "uint16" if dtype == "bfloat16" else dtype
    array = np.frombuffer(raw, np.dtype(stored).newbyteorder("<")).astype(stored).reshape(shape)
    return (array.astype("uint32") << 16).view("float32") if dtype == "bfloat16" else array


def _write_list(names: list[str], arrays: list[np.ndarray]) -> bytes:
    # Scalars and empty arrays exist only in the third version, which MXNet then wants throughout.
    version = _V3 if any(array.size == 0 or array.ndim == 0 for array in arrays) else _V2
    parts = [struct.pack("<QQQ", _LIST_MAGIC, 0, len(arrays))]
    for array in arrays:
        dtype = str(array.dtype)
        if dtype not in DTYPES or dtype == "bfloat16":
            raise ExportError(f"a parameter file has no dtype {dtype}; known are {DTYPES[:-1]}")
        shape = struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape)
        parts.append(struct.pack("<Ii", version, 0) + shape)
        parts.append(struct.pack("<iii", 1, 0, DTYPES.index(dtype)))
        parts.append(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    parts.append(struct.pack("<Q", len(names)))
    for name in names:
        encoded = name.encode("utf-8")
        parts.append(struct.pack("<Q", len(encoded)) + encoded)
    return b"".join(parts)
