"""Loads an exported library with nothing but TVM's runtime.

Everything that can be checked without running the library's code is checked before the dynamic
loader sees the file: that it is whole, that it is Baton's, that this CPU can run it.
"""

from __future__ import annotations

import functools
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from compiler.errors import ForeignLibraryError, IncompatibleDeviceError, LoadError
from compiler.runtime import container, cuda_runtime, elf
from compiler.runtime.code import link_and_load, load_code
from compiler.runtime.factory import FactoryModule
from compiler.runtime.host import require_cpu_features
from compiler.runtime.metadata import Metadata
from compiler.runtime.weights import map_weights
from compiler.support.archive_limits import ArchiveError, opened_tar, plain_members
from compiler.support.regular_files import foreign_kind, open_regular, os_errors_as
from compiler.support.tempdir import TemporaryFolder

_PIECE = 1 << 22  # bytes that are copied at a time
_TAR_MAGIC, _TAR_MAGIC_OFFSET = b"ustar", 257
_GZIP_MAGIC = b"\x1f\x8b"
_OBJECT_NAME = re.compile(r"\d{2,}-[\w.+-]+\.[oa]")


class LoadedFile:
    """The file of a loaded library, kept open.

    Another file may have replaced it at its path, or the path may be gone.

    `file`: open for reading; its descriptor is duplicated.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = os.fdopen(os.dup(file.fileno()), "rb")
        self._stamp = self._now()

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    @property
    def descriptor(self) -> int:
        """The descriptor of the open file."""
        return self._file.fileno()

    @property
    def nbytes(self) -> int:
        """Bytes of the file as it was loaded."""
        return self._stamp[0]

    def copy_to(self, target: Path) -> None:
        """Write the bytes that were loaded to another file, with the same mode.

        Raises OSError: the file was written into since it was loaded, or `target` can't be written.
        """
        if self._now() != self._stamp:
            raise OSError(f"{str(self.path)!r} was written into since it was loaded; load it again")
        with open(target, "wb") as out:
            position, size = 0, self._stamp[0]
            while position < size:
                piece = os.pread(self._file.fileno(), _PIECE, position)
                if not piece:
                    raise OSError(f"{str(self.path)!r} became shorter while it was read")
                out.write(piece)
                position += len(piece)
        os.chmod(target, os.fstat(self._file.fileno()).st_mode & 0o7777)


@dataclass(frozen=True)
class _Opened:
    """A library whose file has been checked, and how to load its code."""

    envelope: container.Envelope
    weights_offset: int
    machine: str
    load_code: Callable[[int], Any]
    """Takes the descriptor of the file."""


@dataclass(frozen=True)
class CheckedFile:
    """A library of which nothing has run yet: its file, description, weights, way to its code."""

    file: LoadedFile
    metadata: Metadata
    params: dict[str, Any]
    machine: str
    load_code: Callable[[int], Any]
    """Takes the descriptor of `file`."""


def load_module(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview, verify_weights: bool = False
) -> FactoryModule:
    """Load what `FactoryModule.export_library` wrote.

    The weights are mapped from the file, not copied: their pages are read when first used and
    shared with other processes that load the file. Replace the file by exporting again (a new
    file takes its place) or delete it, but don't write into it while it is loaded.

    Parameters
    ----------
    path : path or bytes
        A `.so` or `.tar`, or its content, which is copied to a temporary file. A `.tar` is linked
        first, with the host's C++ compiler.
    verify_weights : bool
        Also compare the weights with their checksum, which reads all of them.

    Returns
    -------
    library : FactoryModule

    Raises
    ------
    LoadError
        The file is missing, no library of Baton's, truncated, corrupt, or can't be linked.
    IncompatibleDeviceError
        The library is for another kind of processor, or uses CPU features that this machine
        lacks. None of its code has run.
    """
    if isinstance(path, (bytes, bytearray, memoryview)):
        return _load_content(path, verify_weights)
    checked = check_file(path, verify_weights)
    metadata, origin = checked.metadata, checked.file.path
    if checked.machine != this_machine():
        raise IncompatibleDeviceError(
            f"the library {str(origin)!r} was built for {checked.machine}, and this machine is "
            f"{this_machine()}; build the model for this one"
        )
    require_cpu_features(metadata, f"the library {str(origin)!r}")
    lacking = cuda_runtime.prepare() if "cuda" in metadata.devices else None
    try:
        code = checked.load_code(checked.file.descriptor)
    except Exception as error:
        if lacking is not None:
            raise LoadError(f"{str(origin)!r} has kernels for CUDA, and {lacking}") from error
        raise LoadError(
            f"can't load the code of {str(origin)!r}, built for {metadata.target or 'unknown'} "
            f"by TVM {metadata.tvm_version or 'unknown'}: {type(error).__name__}: {error}"
        ) from error
    report = {**metadata.report, "library_bytes": checked.file.nbytes}
    return FactoryModule(code, metadata, checked.params, report, origin=checked.file)


def _load_content(content: bytes | bytearray | memoryview, verify_weights: bool) -> FactoryModule:
    """Load a library from a file whose name goes at once; its pages stay as long as it is used."""
    with (
        os_errors_as(
            LoadError, f"can't keep a library of {len(content)} bytes in a temporary file"
        ),
        TemporaryFolder("library") as folder,
    ):
        is_elf = bytes(content[: len(elf.MAGIC)]) == elf.MAGIC
        path = Path(folder) / ("library.so" if is_elf else "library.tar")
        path.write_bytes(content)
        return load_module(path, verify_weights)


def check_file(path: str | os.PathLike[str], verify_weights: bool = False) -> CheckedFile:
    """Read everything but the code of an exported library; raises LoadError as `load_module`."""
    try:
        origin = Path(os.path.realpath(os.fspath(path)))
        file = open_regular(origin)
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LoadError(f"can't open the library {path!r:.200}: {reason}") from error
    with file:
        try:
            opened = _open(file, origin)
            if verify_weights:
                _require_intact_weights(file, opened, origin)
        except (elf.MalformedElfError, ArchiveError, OSError, MemoryError) as error:
            raise LoadError(
                f"{str(origin)!r} is corrupt or truncated ({error}); export the model again"
            ) from error
        metadata = opened.envelope.metadata
        has_weights = opened.envelope.weights_nbytes == metadata.weights_nbytes
        params = map_weights(file, opened.weights_offset, metadata) if has_weights else {}
        return CheckedFile(
            LoadedFile(origin, file), metadata, params, opened.machine, opened.load_code
        )


@functools.cache
def this_machine() -> str:
    """The architecture of this process, as `elf.machine` names it."""
    with open("/proc/self/exe", "rb") as program:
        return elf.machine(program)


def _open(file: BinaryIO, origin: Path) -> _Opened:
    magic = file.read(len(elf.MAGIC))
    if magic == elf.MAGIC:
        return _open_shared_library(file, origin)
    if magic.startswith(_GZIP_MAGIC):  # TVM's own archives; Baton's are plain
        raise _not_ours(origin)
    if magic and _is_tar(file):
        return _open_archive(file, origin)
    file.seek(0)
    if kind := foreign_kind(file.read(64)):
        raise LoadError(f"{str(origin)!r} is not a library: it is {kind}")
    raise LoadError(
        f"{str(origin)!r} is neither a shared library nor a .tar archive; load a file that "
        "export_library wrote"
    )


def _is_tar(file: BinaryIO) -> bool:
    file.seek(_TAR_MAGIC_OFFSET)
    return file.read(len(_TAR_MAGIC)) == _TAR_MAGIC


def _open_shared_library(file: BinaryIO, origin: Path) -> _Opened:
    sections = elf.read_sections(file)
    if container.METADATA not in sections or container.WEIGHTS not in sections:
        raise _not_ours(origin)
    section = sections[container.METADATA]
    file.seek(section.offset)
    envelope = container.Envelope.from_bytes(file.read(section.size), str(origin))
    weights = sections[container.WEIGHTS]
    _require_size(envelope, weights.size, origin)
    _require_checksum(elf.image_checksum(file), envelope, origin)
    return _Opened(envelope, weights.offset, elf.machine(file), load_code)


def _open_archive(file: BinaryIO, origin: Path) -> _Opened:
    file.seek(0)
    with opened_tar(file) as (archive, most):
        members = {info.name: info for info in plain_members(archive, most)}
        objects = {name: info for name, info in members.items() if _OBJECT_NAME.fullmatch(name)}
        contents = {name: _read_member(file, info) for name, info in sorted(objects.items())}
        blocks = _blocks_of_archive(archive, members)
    if container.METADATA not in blocks or container.WEIGHTS not in blocks:
        raise _not_ours(origin)
    metadata, weights = blocks[container.METADATA], blocks[container.WEIGHTS]
    file.seek(metadata.offset)
    envelope = container.Envelope.from_bytes(file.read(metadata.size), str(origin))
    _require_size(envelope, weights.size, origin)
    checksum = 0
    for content in contents.values():
        checksum = zlib.crc32(content, checksum)
    _require_checksum(checksum, envelope, origin)
    machine = elf.machine(io.BytesIO(next(iter(contents.values()), b"")))
    return _Opened(envelope, weights.offset, machine, lambda _: link_and_load(contents))


def _blocks_of_archive(
    archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo]
) -> dict[str, elf.Section]:
    """Where weights and metadata lie in the file of an archive."""
    if container.OBJECT not in members:
        return {name: elf.Section(info.offset_data, info.size) for name, info in members.items()}
    info = members[container.OBJECT]
    described = cast(BinaryIO, archive.extractfile(info))
    return {
        name: elf.Section(info.offset_data + section.offset, section.size)
        for name, section in elf.read_sections(described).items()
    }


def _read_member(file: BinaryIO, info: tarfile.TarInfo) -> bytes:
    file.seek(info.offset_data)
    return file.read(info.size)


def _require_size(envelope: container.Envelope, size: int, origin: Path) -> None:
    if size != envelope.weights_nbytes:
        raise LoadError(
            f"{str(origin)!r} holds {size} bytes of weights instead of "
            f"{envelope.weights_nbytes}; export the model again"
        )


def _require_checksum(checksum: int, envelope: container.Envelope, origin: Path) -> None:
    if checksum != envelope.code_checksum:
        raise LoadError(
            f"{str(origin)!r} is corrupt: its code does not have the checksum that it had when it "
            "was exported; export the model again"
        )


def _require_intact_weights(file: BinaryIO, opened: _Opened, origin: Path) -> None:
    start, size = opened.weights_offset, opened.envelope.weights_nbytes
    if elf.range_checksum(file, start, start + size) != opened.envelope.weights_checksum:
        raise LoadError(
            f"{str(origin)!r} is corrupt: its weights do not have the checksum that they had when "
            "they were exported; export the model again"
        )


def _not_ours(origin: Path) -> ForeignLibraryError:
    return ForeignLibraryError(
        f"{str(origin)!r} holds no metadata of Baton's: it was not written by "
        "FactoryModule.export_library, or it is truncated. Libraries that TVM exported itself are "
        "loaded with tvm.runtime.load_module"
    )
