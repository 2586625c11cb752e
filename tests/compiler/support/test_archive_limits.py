from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile

import pytest

from compiler.support import archive_limits
from compiler.support.archive_limits import ArchiveError, unpack_tar


def packed(*members: tuple[tarfile.TarInfo, bytes], compress=bytes) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return compress(stream.getvalue())


def member(name: str, content: bytes = b"", **fields) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def unpack(data: bytes, folder) -> None:
    (folder / "archive").write_bytes(data)
    (folder / "out").mkdir()
    with open(folder / "archive", "rb") as file:
        unpack_tar(file, folder / "out")


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_plain_files_are_unpacked(tmp_path, compress):
    folder = member("sub", type=tarfile.DIRTYPE)
    data = packed(folder, member("sub/a", b"1"), member("b", b"2" * 5000), compress=compress)
    unpack(data, tmp_path)
    assert (tmp_path / "out/sub/a").read_bytes() == b"1"
    assert (tmp_path / "out/b").read_bytes() == b"2" * 5000


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (member("../a"), "is outside of the archive"),
        (member("/a"), "is outside of the archive"),
        (member("a", type=tarfile.SYMTYPE, linkname="b"), "is no plain file"),
        (member("a", type=tarfile.LNKTYPE, linkname="b"), "is no plain file"),
        (member("a", type=tarfile.FIFOTYPE), "is no plain file"),
        (member("a", type=tarfile.CHRTYPE), "is no plain file"),
        (member("a", pax_headers={"GNU.sparse.size": "2199023255552", "GNU.sparse.map": "0,0"}),
         "is sparse"),
    ],
)  # fmt: skip
def test_members_that_are_no_plain_files_inside_are_rejected(tmp_path, made, reason):
    with pytest.raises(ArchiveError, match=reason):
        unpack(packed(made), tmp_path)
    assert list((tmp_path / "out").iterdir()) == []


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_sizes_beyond_the_limit_are_rejected(tmp_path, kind, compress):
    data = compress(header("a", 1 << 41, kind) + bytes(10240))
    with pytest.raises(ArchiveError):
        unpack(data, tmp_path)
    assert sum(each.stat().st_size for each in (tmp_path / "out").iterdir()) == 0


def test_compressed_zeros_are_not_unpacked_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_limits, "_MIN_UNPACKED", 1 << 16)
    content = bytes(1 << 22)
    unpack_to = [member("a", content), member("b", content)]
    with pytest.raises(ArchiveError, match=r"unpack to more than \d+ bytes"):
        unpack(packed(*unpack_to, compress=gzip.compress), tmp_path)


def test_a_number_of_members_beyond_the_limit_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_limits, "MAX_MEMBERS", 3)
    with pytest.raises(ArchiveError, match="more than 3 members"):
        unpack(packed(*(member(str(number)) for number in range(4))), tmp_path)


def test_two_members_of_one_name_are_rejected(tmp_path):
    with pytest.raises(ArchiveError):
        unpack(packed(member("a", b"1"), member("a", b"2")), tmp_path)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_truncated_archives_are_rejected(tmp_path, compress):
    data = packed(member("a", bytes(range(256)) * 100), compress=compress)
    with pytest.raises(ArchiveError):
        unpack(data[: len(data) // 3], tmp_path)
