from __future__ import annotations

import os
import socket

import pytest

from compiler.support.regular_files import open_inside, open_regular, read_regular


def test_a_regular_file_is_read_whole(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(str(tmp_path / "link")) == b"content"
    with open_regular(tmp_path / "file") as file:
        assert file.read(3) == b"con"
        assert file.name == str(tmp_path / "file")
        assert not os.get_inheritable(file.fileno())


def fifo(folder):
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def bound_socket(folder):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
    return folder / "socket"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (fifo, "it is a FIFO; copy its content to a regular file first"),
        (bound_socket, "not a regular file"),
        (lambda _: "/dev/zero", "it is a character device"),
        (lambda folder: folder, "Is a directory"),
        (lambda folder: folder / "absent", "No such file"),
        (lambda folder: f"{folder}/\0", "its path is invalid"),
        (lambda folder: f"{folder}/\ud800", "its path is invalid"),
    ],
)
def test_what_is_no_regular_file_is_an_error_without_waiting(tmp_path, make, reason):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError) as caught:
        read_regular(make(tmp_path))
    assert reason in caught.value.strerror
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sparse_file_that_is_larger_than_memory_is_not_read(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(OSError, match="more than the memory of this machine"):
        read_regular(tmp_path / "sparse")


def test_a_file_below_a_folder_stays_the_one_that_was_checked(tmp_path):
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "w").write_bytes(b"checked")
    with open_inside(folder, "data/../data/w") as file:
        (folder / "other").write_bytes(b"another")
        os.replace(folder / "other", folder / "data" / "w")
        assert file.read() == b"checked"


@pytest.mark.parametrize("location", ["", ".", "..", "../w", "/w", "link", "linked/w", "hard"])
def test_a_location_that_leads_out_of_its_folder_is_rejected(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "w")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "hard").hardlink_to(tmp_path / "w")
    with pytest.raises(OSError):
        open_inside(folder, location)
