from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler.lowering.cache.kernel_cache import DEFAULT_LIMIT, KernelCache, user_cache
from compiler.support.tempdir import open_temp_beside

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "baton" / "kernels", 10**6)


def only_file(cache):
    (path,) = cache.folder.iterdir()
    return path


def test_what_was_put_is_found_and_nothing_else(cache):
    assert cache.get("a") is None
    cache.put("a", b"code of a")
    cache.put("b", b"")
    assert cache.get("a") == b"code of a"
    assert cache.get("b") == b""
    assert cache.get("c") is None
    assert cache.usage().kernels == 2


def test_folder_and_files_are_for_their_owner_alone(cache):
    before = os.umask(0)
    try:
        cache.put("a", b"code")
    finally:
        os.umask(before)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert only_file(cache).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", [0, 20, -1])
def test_a_changed_byte_makes_a_kernel_missing(cache, at, caplog):
    cache.put("a", b"code of a kernel")
    content = bytearray(only_file(cache).read_bytes())
    content[at] ^= 1
    only_file(cache).write_bytes(content)
    assert cache.get("a") is None
    assert "damaged" in caplog.text
    cache.put("a", b"code of a kernel")
    assert cache.get("a") == b"code of a kernel"


@pytest.mark.parametrize("length", [0, 5, 40, 55])
def test_a_truncated_file_makes_a_kernel_missing(cache, length):
    cache.put("a", b"code of a kernel")
    only_file(cache).write_bytes(only_file(cache).read_bytes()[:length])
    assert cache.get("a") is None


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_is_not_used(cache, mode, caplog):
    cache.put("a", b"code")
    cache.folder.chmod(mode)
    assert cache.get("a") is None
    assert "is not used" in caplog.text
    cache.put("b", b"code")
    cache.folder.chmod(0o700)
    assert cache.get("a") == b"code"
    assert cache.get("b") is None


def test_a_file_that_others_can_write_is_not_used(cache):
    cache.put("a", b"code")
    only_file(cache).chmod(0o666)
    assert cache.get("a") is None


def test_a_folder_of_somebody_else_is_not_used(cache, monkeypatch):
    cache.put("a", b"code")
    somebody_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody_else)
    assert cache.get("a") is None


def test_a_link_to_a_folder_is_not_used(cache, tmp_path):
    cache.put("a", b"code")
    (tmp_path / "link").symlink_to(cache.folder)
    assert KernelCache(tmp_path / "link", 10**6).get("a") is None


def test_trim_drops_the_least_recently_used_first(tmp_path):
    cache = KernelCache(tmp_path / "kernels", 350)
    for position, key in enumerate("abcd"):
        cache.put(key, bytes(100 - 47))
        os.utime(cache.folder / f"{key}.kernel", (position, position))
    assert cache.get("a") is not None  # now the most recently used
    cache.trim()
    assert [key for key in "abcd" if cache.get(key) is not None] == ["a", "c", "d"]
    assert cache.usage().bytes <= 350


def test_a_process_trims_at_first_and_once_it_wrote_a_share_of_the_limit(tmp_path):
    cache = KernelCache(tmp_path / "kernels", limit=100_000)
    cache.put("old", b"x" * 200_000)
    cache.trim_at_times()
    assert cache.usage().kernels == 0
    (cache.folder / "of_another_process.kernel").write_bytes(b"x" * 200_000)
    cache.put("small", b"x" * 100)
    cache.trim_at_times()
    assert cache.usage().bytes > 100_000
    cache.put("large", b"x" * 2000)
    cache.trim_at_times()
    assert cache.usage().bytes < 100_000


def test_trim_drops_drafts_of_killed_builds_and_keeps_those_in_progress(cache):
    cache.put("a", b"code")
    old = cache.folder / ".baton-draft-0a1b2c3d.tmp"
    old.write_bytes(b"half")
    descriptor, new = open_temp_beside(cache.folder, 0o600)
    cache.trim()
    os.close(descriptor)
    assert not old.exists()
    assert Path(new).exists()
    assert cache.get("a") == b"code"


def test_no_limit_left_means_that_nothing_is_kept(tmp_path):
    cache = KernelCache(tmp_path / "kernels", 0)
    cache.put("a", b"code")
    assert cache.get("a") is None
    assert not cache.folder.exists()


def test_a_folder_that_cannot_be_made_is_logged_and_no_error(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "kernels", 10**6)
    cache.put("a", b"code")
    assert cache.get("a") is None
    assert "can't write" in caplog.text


def test_clear_says_what_there_was_and_leaves_nothing(cache):
    cache.put("a", b"code")
    cache.put("b", b"code")
    assert cache.clear().kernels == 2
    assert cache.usage().kernels == 0
    assert list(cache.folder.iterdir()) == []


def test_the_environment_says_where_and_how_much(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "12345")
    assert user_cache().folder == tmp_path / "baton" / "kernels"
    assert user_cache().limit == 12345
    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "1GB")
    assert user_cache().limit == DEFAULT_LIMIT
    assert "'1GB'" in caplog.text
    monkeypatch.delenv("BATON_KERNEL_CACHE_BYTES")
    assert user_cache().limit == DEFAULT_LIMIT


WRITER = """
import sys
from pathlib import Path
from compiler.lowering.cache.kernel_cache import KernelCache
cache = KernelCache(Path(sys.argv[1]), 600_000)
print("ready", flush=True)
for turn in range(10**9):
    key = str(turn % 7)
    cache.put(key, key.encode() * 100_000)
    cache.get(str((turn + 3) % 7))
    cache.trim()
"""


def test_writers_side_by_side_that_are_killed_leave_only_whole_kernels(tmp_path):
    folder = tmp_path / "kernels"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    cache, seen = KernelCache(folder, 600_000), 0
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        for key in "0123456":
            code = cache.get(key)
            assert code in (None, key.encode() * 100_000)
            seen += code is not None
    for writer in writers:
        assert writer.poll() is None, writer.stderr.read()
        writer.send_signal(signal.SIGKILL)
        _, complaints = writer.communicate()
        assert complaints == ""
    assert seen
    for path in folder.glob("*.kernel"):
        assert cache.get(path.stem) == path.stem.encode() * 100_000
