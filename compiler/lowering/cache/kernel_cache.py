"""Cache compiled CPU kernels and whole libraries on disk for later builds.

Each kernel has one file, named by the hash of everything that decides its machine code. The file is
a header, the SHA-256 of the object code, and the object code. Each library (`library_cache`) and
each command (`cli_cache`) also has one file. Files are written atomically (temporary file and
rename), which is safe with concurrent and killed builds. Damaged entries are compiled again.

Object code is executed later: the folder is made for its owner alone, and a folder or file that
another user owns or can write is not used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...support.atomic_file import replacing
from ...support.cache_dir import MISSING, cache_folder
from ...support.tempdir import remove_abandoned

logger = logging.getLogger("baton.lowering.kernel_cache")

LIMIT_VARIABLE = "BATON_KERNEL_CACHE_BYTES"
DEFAULT_LIMIT = 4 * 10**9
_MAGIC = b"baton kernel 1\n"
_SUFFIX = ".kernel"
_LIBRARY_SUFFIX = ".library"
_COMMAND_SUFFIX = ".command"
# Messages already logged: a build writes many files, and each would log the same problem.
_said: set[str] = set()
# Evict to below the limit, so that the next builds do not each have to evict.
_KEPT_SHARE = 0.9
# Listing a folder of many files takes a second, so not every build does it.
_LISTED_EACH_SHARE = 0.01
# Bytes that this process wrote to a folder since it last listed it.
_written: dict[Path, int] = {}


@dataclass(frozen=True)
class Usage:
    folder: Path | None  # None for a user without a home folder
    kernels: int
    libraries: int
    bytes: int  # of all of them together, and of what is kept for commands
    limit: int  # the most that `trim` leaves; 0 where the cache is off


class KernelCache:
    """Object code and libraries by key in one folder.

    The first kept kernel creates `folder`, readable by its owner alone; None turns the cache off.
    `trim` leaves at most `limit` bytes; 0 turns the cache off: it then finds and keeps nothing.
    `problem`: why nothing is kept any more, or ""; logged once in a process.
    """

    def __init__(self, folder: Path | None, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.problem = ""
        if folder is None and limit:
            self.limit = 0
            self._give_up(MISSING)

    def get(self, key: str) -> bytes | None:
        """Look up object code; None if it is missing or damaged."""
        file = self._open(key + _SUFFIX)
        if file is None:
            return None
        path = file.name
        try:
            with file:
                content = file.read()
        except OSError as error:
            logger.warning("kernel cache: can't read %s: %s", path, error.strerror)
            return None
        digest, code = content[len(_MAGIC) :][:32], content[len(_MAGIC) + 32 :]
        if not content.startswith(_MAGIC) or hashlib.sha256(code).digest() != digest:
            logger.warning("kernel cache: %s is damaged; its kernel is compiled again", path)
            return None
        return code

    def put(self, key: str, code: bytes) -> None:
        """Store object code; a write failure is logged, not raised."""
        content = _MAGIC + hashlib.sha256(code).digest() + code
        self._write(key + _SUFFIX, lambda file: file.write(content))

    def open_library(self, key: str) -> BinaryIO | None:
        """Open the file of a cached library, for the caller to check and close."""
        return self._open(key + _LIBRARY_SUFFIX)

    def put_library(self, key: str, write: Callable[[BinaryIO], object]) -> None:
        """Store the output of `write`; a write failure is logged, not raised."""
        self._write(key + _LIBRARY_SUFFIX, write)

    def open_command(self, key: str) -> BinaryIO | None:
        """Open the file of a cached command, for the caller to check and close."""
        return self._open(key + _COMMAND_SUFFIX)

    def put_command(self, key: str, content: bytes) -> None:
        """Store the output of a command; a write failure is logged, not raised."""
        self._write(key + _COMMAND_SUFFIX, lambda file: file.write(content))

    def _open(self, name: str) -> BinaryIO | None:
        """Open a file that only this user can have written, and mark it as used now."""
        if not self.limit or self.folder is None or not self._is_safe():
            return None
        path = self.folder / name
        try:
            file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("kernel cache: can't read %s: %s", path, error.strerror)
            return None
        if not _is_ours(os.fstat(file.fileno())):
            logger.warning("kernel cache: %s is not only its user's; not used", path)
            file.close()
            return None
        try:
            os.utime(path)  # the time of last use is what `trim` goes by
        except OSError:
            logger.debug("kernel cache: %s was evicted while it was read, or is read-only", path)
        return file

    def _write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        if not self.limit or self.folder is None or self.problem:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_safe():
                return
            with replacing(self.folder / name, permissions=0o600) as file:
                write(file)
                if self.folder in _written:
                    _written[self.folder] += file.tell()
        except OSError as error:
            self._give_up(f"can't write to {self.folder}: {error.strerror}")

    def _give_up(self, reason: str) -> None:
        self.problem = reason
        if reason not in _said:
            _said.add(reason)
            logger.warning("kernel cache: %s", reason)

    def trim_at_times(self) -> None:
        """Call `trim` once per process, and again after each 1 % of the limit written."""
        written = _written.get(self.folder) if self.folder is not None else None
        if written is None or written > self.limit * _LISTED_EACH_SHARE:
            self.trim()

    def trim(self) -> None:
        """Evict the least recently used files above the limit, and leftovers of killed builds."""
        if self.folder is None or not self.limit or not self._is_safe():
            return
        _written[self.folder] = 0
        try:
            self._trim()
        except OSError as error:
            self._give_up(f"can't list {self.folder}: {error.strerror}")

    def _trim(self) -> None:
        entries = self._entries()
        total = sum(status.st_size for _, status in entries)
        if total > self.limit:
            for path, status in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
                if total <= self.limit * _KEPT_SHARE:
                    break
                if _dropped(path):
                    total -= status.st_size
        if self.folder is not None:
            remove_abandoned(self.folder)

    def clear(self) -> Usage:
        """Remove all kernels and libraries; return the usage before. Raises OSError on failure."""
        before = self.usage()
        for path, _ in self._entries():
            path.unlink(missing_ok=True)
        if self.folder is not None:
            remove_abandoned(self.folder)
        return before

    def usage(self) -> Usage:
        kernels = [status.st_size for _, status in self._files(_SUFFIX)]
        libraries = [status.st_size for _, status in self._files(_LIBRARY_SUFFIX)]
        commands = [status.st_size for _, status in self._files(_COMMAND_SUFFIX)]
        total = sum(kernels) + sum(libraries) + sum(commands)
        return Usage(self.folder, len(kernels), len(libraries), total, self.limit)

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        return [
            entry
            for suffix in (_SUFFIX, _LIBRARY_SUFFIX, _COMMAND_SUFFIX)
            for entry in self._files(suffix)
        ]

    def _files(self, suffix: str) -> list[tuple[Path, os.stat_result]]:
        """Files of the folder with their status; concurrent builds may remove some meanwhile."""
        found: list[tuple[Path, os.stat_result]] = []
        if self.folder is None:
            return found
        try:
            with os.scandir(self.folder) as listing:
                for entry in listing:
                    if entry.name.endswith(suffix):
                        try:
                            found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
                        except FileNotFoundError:
                            continue
        except FileNotFoundError:
            return []
        return found

    def _is_safe(self) -> bool:
        """Whether only this user can write to the folder; a missing folder is unsafe."""
        try:
            status = os.lstat(self.folder or "")
        except OSError:
            return False
        if stat.S_ISDIR(status.st_mode) and _is_ours(status):
            return True
        self._give_up(
            f"{self.folder} is not used, because it is not a folder that this user owns and nobody "
            "else can write; remove it or make it so"
        )
        return False


def user_cache() -> KernelCache:
    """The cache of this user, $XDG_CACHE_HOME/baton/kernels, with its limit.

    BATON_KERNEL_CACHE_BYTES sets the limit (4 GB by default); 0 turns the cache off. Anything but a
    number is logged and ignored.
    """
    folder = cache_folder()
    given = os.environ.get(LIMIT_VARIABLE, "").strip()
    if given and not given.isdecimal():
        logger.warning("%s is %r, not a number of bytes; ignored", LIMIT_VARIABLE, given)
    limit = int(given) if given.isdecimal() else DEFAULT_LIMIT
    return KernelCache(folder and folder / "kernels", limit)


def _dropped(path: Path) -> bool:
    """Remove a file; False if that fails, for example in a read-only folder."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.debug("kernel cache: can't remove %s: %s", path, error.strerror)
        return False
    return True


def _is_ours(status: os.stat_result) -> bool:
    """Whether this user owns the file or folder and is the only one who can write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
