"""Temporary folders and drafts that do not outlive their process for long, even if it is killed.

Each is locked (`flock`) by the process that made it, for as long as that lives. The first one that
another process makes in the same folder removes those that nobody holds any more. Their names say
what they are for: baton-kernels-k3j_9xq2.tmp.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

_PREFIX, _SUFFIX = "baton-", ".tmp"
_NAME = re.compile(r"\.?baton-[a-z]+-[a-z0-9_]{8}\.tmp")
_known: set[str] = set()  # folders that this process has looked through


class TemporaryFolder:
    """A folder of this process alone, removed by `cleanup`, by the end of a `with`, or at exit.

    `purpose`: small letters; part of the folder's name. `beside`: a file that will come to lie
    beside the folder, which then is hidden; by default the folder is in the system's folder for
    temporary files. `name`: absolute path.
    Raises OSError: it can't be made.
    """

    def __init__(self, purpose: str, beside: str | os.PathLike[str] | None = None) -> None:
        parent = tempfile.gettempdir() if beside is None else os.path.dirname(os.fspath(beside))
        parent = _swept(parent)
        prefix = f"{'' if beside is None else '.'}{_PREFIX}{purpose}-"
        while True:
            self.name = tempfile.mkdtemp(_SUFFIX, prefix, parent)
            lock = _held(self.name)
            if lock is not None:
                break
        self._finalizer = weakref.finalize(self, _remove, self.name, lock, os.getpid())

    def cleanup(self) -> None:
        """Remove the folder and all that is in it."""
        self._finalizer()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def open_temp_beside(folder: str | os.PathLike[str], permissions: int) -> tuple[int, str]:
    """Make an empty file of a name that is new in a folder.

    `permissions`: of the file, as for `os.open`: the process's umask applies. Returns its
    descriptor, open for writing and holding its lock, and its path.
    Raises OSError: it can't be made.
    """
    folder = _swept(folder)
    # O_EXCL fails on whatever has the name already, a symbolic link included.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        path = os.path.join(folder, f".{_PREFIX}draft-{secrets.token_hex(4)}{_SUFFIX}")
        try:
            descriptor = os.open(path, flags, permissions)
        except FileExistsError:
            continue
        if _lock(descriptor, path):
            return descriptor, path
        os.close(descriptor)


def remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Remove what processes that are gone left in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for entry in listing:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry.path)


def _swept(folder: str | os.PathLike[str]) -> str:
    """The absolute path of a folder in which something is made; looked through the first time."""
    path = os.path.abspath(folder)
    if path not in _known:
        _known.add(path)
        remove_abandoned(path)
    return path


def _remove_if_abandoned(path: str) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it is in use
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path)
        elif stat.S_ISREG(status.st_mode):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _held(path: str) -> int | None:
    """Descriptor that holds the lock of a folder just made; None if the folder is gone again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if _lock(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _lock(descriptor: int, path: str) -> bool:
    """Lock what was just made; False if another process took it for abandoned before that."""
    with contextlib.suppress(OSError):  # no locks here, so nobody else can lock and remove it
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _remove(path: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child leaves its parent's folder alone
        shutil.rmtree(Path(path), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.close(lock)
