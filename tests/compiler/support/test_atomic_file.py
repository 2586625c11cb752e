from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from compiler.mxnet.array import safetensors
from compiler.mxnet_format import params
from compiler.support import tempdir
from compiler.support.atomic_file import atomic_write_path, replacing
from compiler.support.cache_dir import cache_folder
from compiler.support.tempdir import TemporaryFolder, open_temp_beside, remove_abandoned

ROOT = Path(__file__).resolve().parents[3]


def test_a_file_appears_whole_with_the_permissions_that_a_plain_one_has(tmp_path):
    path, plain = tmp_path / "file", tmp_path / "plain"
    path.write_bytes(b"old")
    plain.touch()
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode == plain.stat().st_mode
    assert sorted(tmp_path.iterdir()) == [path, plain]


@pytest.mark.parametrize("way", [replacing, atomic_write_path])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, way):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), way(path) as draft:
        draft.write(b"new") if way is replacing else draft.write_bytes(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_path_have_drafts_of_their_own(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # the last to end


@pytest.mark.parametrize("save", [params.save_params, safetensors.write])
def test_parameter_files_are_not_written_through_links_that_somebody_planted(tmp_path, save):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    os.symlink(victim, tmp_path / "net.params.part")
    save(tmp_path / "net.params", {"w": np.ones(3, "float32")})
    assert victim.read_bytes() == b"mine"
    assert (tmp_path / "net.params.part").is_symlink()


def test_a_draft_never_takes_a_name_that_a_link_has(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    os.symlink(victim, tmp_path / ".baton-draft-00000000.tmp")
    names = iter(["00000000", "00000001"])
    monkeypatch.setattr(tempdir.secrets, "token_hex", lambda _: next(names))
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
    assert victim.read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new"


KILLED = """
import os, sys, tempfile, time
from compiler.support.tempdir import TemporaryFolder
from compiler.support.atomic_file import replacing
tempfile.tempdir = sys.argv[1]
folder = TemporaryFolder("kernels")
open(os.path.join(folder.name, "kernel.o"), "wb").close()
with replacing(os.path.join(sys.argv[1], "file")) as file:
    print("ready", flush=True)
    time.sleep(100)
"""


def test_what_a_killed_process_left_goes_at_the_next_use_and_not_before(tmp_path, monkeypatch):
    kept = tmp_path / "baton-results"  # not a name that Baton makes
    kept.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    alive = sorted(tmp_path.iterdir())
    assert len(alive) == 3
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == alive
    process.send_signal(signal.SIGKILL)
    process.communicate()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TemporaryFolder("kernels") as folder:
        assert sorted(tmp_path.iterdir()) == sorted([kept, Path(folder)])
    assert list(tmp_path.iterdir()) == [kept]


def test_links_named_like_a_temporary_folder_are_left_alone(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    os.symlink(victim, tmp_path / "baton-kernels-00000000.tmp")
    remove_abandoned(tmp_path)
    assert (victim / "file").exists()


def test_a_folder_goes_with_its_object(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = TemporaryFolder("kernels")
    assert [each.name for each in tmp_path.iterdir()] == [os.path.basename(folder.name)]
    del folder
    assert not list(tmp_path.iterdir())


def test_a_forked_child_leaves_its_parents_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TemporaryFolder("kernels") as folder:
        child = os.fork()
        if not child:
            tempdir.weakref.finalize._exitfunc()  # what the interpreter does at exit
            os._exit(0)
        os.waitpid(child, 0)
        assert os.path.isdir(folder)


def test_drafts_are_locked_while_they_are_written(tmp_path):
    descriptor, path = open_temp_beside(tmp_path, 0o600)
    remove_abandoned(tmp_path)
    assert os.path.exists(path)
    os.close(descriptor)
    remove_abandoned(tmp_path)
    assert not os.path.exists(path)


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/baton")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache" / "baton"
