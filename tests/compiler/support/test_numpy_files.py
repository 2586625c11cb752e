from __future__ import annotations

import io
import os
import struct
import zipfile

import numpy as np
import pytest

from compiler.support import archive_limits
from compiler.support.numpy_files import read_npy, read_npz


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5, 4)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "<U3"])
def test_arrays_are_read(tmp_path, shape, dtype):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    np.save(tmp_path / "a.npy", value)
    np.savez(tmp_path / "a.npz", first=value, second=np.asfortranarray(value))
    np.savez_compressed(tmp_path / "b.npz", first=value, second=value)
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), value)
    for name in ("a.npz", "b.npz"):
        arrays = read_npz(tmp_path / name)
        assert list(arrays) == ["first", "second"]
        for array in arrays.values():
            assert array.dtype == value.dtype
            np.testing.assert_array_equal(array, value)


def npy(text: str, content: bytes = b"", version: int = 1) -> bytes:
    header = text.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + content


def declared(shape: str, dtype: str = "'<f4'") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"


DAMAGED = {
    "empty": b"",
    "magic": b"\x93NUMPY",
    "text": b"text, not an array",
    "large shape": npy(declared("(1 << 40,)".replace("1 << 40", str(1 << 40)))),
    "huge extent": npy(declared(f"({10**30},)")),
    "product": npy(declared(f"({1 << 32}, {1 << 32}, {1 << 32})")),
    "negative": npy(declared("(-1, -4)"), bytes(16)),
    "no bytes each": npy(declared(f"({1 << 62},)", "'|V0'")),
    "pickle": npy(declared("(1,)", "'|O'"), b"cos\nsystem\n(S'true'\ntR."),
    "truncated": npy(declared("(4,)"), bytes(15)),
    "deep": npy("(" * 9000),
    "expression": npy(declared("__import__('os')")),
    "long header": npy(declared("(4,)") + " " * 70000, bytes(16), version=2),
    "header length": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1),
    "version": npy(declared("(4,)"), bytes(16), version=9),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("compression", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_arrays_are_errors_that_say_why(tmp_path, data, compression):
    path = tmp_path / "a"
    path.write_bytes(data)
    if compression is not None:
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("x.npy", data)
    with pytest.raises(OSError, match=r"it is not an \.np[yz] file of plain numbers \(.+\)"):
        (read_npy if compression is None else read_npz)(path)


def test_a_sparse_file_of_the_declared_size_does_not_fill_memory(tmp_path):
    with open(tmp_path / "a.npy", "wb") as file:
        file.write(npy(declared(f"({1 << 40},)")))
        file.truncate(1 << 43)
    with pytest.raises(OSError, match="more than the memory of this machine"):
        read_npy(tmp_path / "a.npy")


def test_archives_that_expand_beyond_the_limit_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_limits, "_MIN_UNPACKED", 1 << 16)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 20))
    with pytest.raises(OSError, match=r"unpack to more than \d+ bytes"):
        read_npz(tmp_path / "a.npz")


def test_a_member_larger_than_it_declares_is_an_error(tmp_path):
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.zeros(1000))
    data = bytearray(stream.getvalue())
    size = struct.pack("<I", 8128)
    assert data.count(size) >= 1
    (tmp_path / "a.npz").write_bytes(data.replace(size, struct.pack("<I", 100)))
    with pytest.raises(OSError, match="it is not"):
        read_npz(tmp_path / "a.npz")


def test_names_are_of_arrays_and_different(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "text")
    with pytest.raises(OSError, match=r"'notes\.txt'"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("read", [read_npy, read_npz])
def test_what_is_no_regular_file_is_an_error(tmp_path, read):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match=r"FIFO|directory|device"):
            read(path)
