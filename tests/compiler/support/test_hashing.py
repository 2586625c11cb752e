from __future__ import annotations

import hashlib

import pytest

from compiler.support.hashing import file_digests


@pytest.mark.parametrize("size", [0, 1, 4 << 20, (4 << 20) + 1])
def test_a_digest_is_that_of_its_pieces_digests(tmp_path, size):
    path = tmp_path / "file"
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    path.write_bytes(content)
    pieces = [content[start : start + (4 << 20)] for start in range(0, size, 4 << 20)]
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    assert file_digests([path]) == [hashlib.sha256(digests).hexdigest()]


def test_each_byte_counts(tmp_path):
    path, other = tmp_path / "file", tmp_path / "other"
    content = bytearray(5 << 20)
    path.write_bytes(content)
    content[-1] = 1
    other.write_bytes(content)
    first, second = file_digests([path, other])
    assert first != second


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        file_digests([tmp_path / "none"])
