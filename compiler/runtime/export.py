"""Writes a built library into one file: a shared library (.so) or an archive of objects (.tar).

A `.so` is what TVM exports for the executable, with two sections appended: the weights, page
aligned, and the metadata (see compiler.runtime.container). A `.tar` holds the object files, and one
more with these two sections; it needs no compiler here, but one where it is loaded.

The file appears complete or not at all: it is written in a temporary folder beside its
destination and moved into place by one rename.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import ExportError
from compiler.runtime import container, elf
from compiler.runtime.foreign import IN_PROCESS
from compiler.runtime.shared_library import WriteWeights, explained, sections, write_shared_library
from compiler.runtime.standalone import require_standalone, write_standalone
from compiler.runtime.weights import write_weights
from compiler.support.atomic_file import atomic_write_path
from compiler.support.tempdir import TemporaryFolder

if TYPE_CHECKING:
    from compiler.runtime.factory import FactoryModule
    from compiler.runtime.load import LoadedFile

SUFFIXES = (".so", ".tar")
_LINK_BYTES = 16 << 20  # temporary files of TVM and the linker; SqueezeNet has 0.2 MB of code
_TRIPLE = re.compile(r"mtriple\"?\s*[=:]\s*\"?([\w.+-]+)")


def export_library(
    library: FactoryModule,
    path: str | os.PathLike[str],
    fcompile: Callable[..., Any] | None = None,
    standalone: bool = False,
    **kwargs: Any,
) -> None:
    """Write `library` to `path`.

    Parameters
    ----------
    library : FactoryModule
        Built in this process, or loaded from a file; the latter is copied, so its suffix must
        stay what it is.
    path : path
        Ends in ".so" or ".tar". An existing file is replaced.
    fcompile : callable, optional
        Links the object files of a `.so`, as for TVM's `export_library`; a cross compiler made
        with `tvm.support.cc.cross_compiler`, for example. The host's C++ compiler by default.
    standalone : bool
        Write a `.so` that TVM's runtime loads without Baton, see `compiler.runtime.standalone`.
    **kwargs
        Handed to TVM's `export_library`: `addons`, `workspace_dir`, `cc`, `options`.

    Raises
    ------
    ExportError
        The suffix is unknown, the folder does not exist or can't be written, the disk is full,
        or linking failed. Nothing is left behind, and an existing file is as it was.
    """
    target = require_destination(path)
    if target.suffix == ".tar" and fcompile is not None:
        if getattr(fcompile, "output_format", None) != "tar":
            raise ExportError(
                f"can't export to {str(target)!r}: nothing is compiled for a .tar, so fcompile has "
                "no meaning; leave it out, or export to a .so"
            )
        fcompile = None
    local = [
        name
        for name, entry in library.metadata.partition.items()
        if entry.get("runtime") == IN_PROCESS
    ]
    if local:
        raise ExportError(
            f"can't export to {str(target)!r}: the backend of subgraph {local[0]} compiled it to a "
            "Python function, which can't leave this process"
        )

    if standalone:
        require_standalone(library, target)
    by_default = fcompile is None and not kwargs
    with explained(target), atomic_write_path(target) as draft:
        if kwargs.get("workspace_dir") is None:  # TVM's own choice would outlive a kill
            kwargs["workspace_dir"] = str(draft.parent / "objects")
            os.mkdir(kwargs["workspace_dir"])
        if library.origin_file is not None:
            _copy(library.origin_file, draft)
        elif not library.get_lib()._collect_dso_modules():
            raise ExportError(
                f"can't export to {str(target)!r}: the code was loaded from a library, whose "
                "object files are gone; export the loaded library itself, with its weights"
            )
        elif standalone:
            with _linking(library, draft, fcompile, kwargs):
                write_standalone(library, draft, fcompile, **kwargs)
        elif target.suffix == ".so":
            image = library.image() if by_default else _link(library, draft, fcompile, kwargs)
            write_shared_library(draft, image, library.metadata, _weights(library))
        else:
            _write_archive(library, draft, kwargs)


def require_destination(path: str | os.PathLike[str]) -> Path:
    """The path of a library to write.

    Raises ExportError: the suffix is unknown, or the folder does not exist or can't be written.
    """
    target = Path(os.fspath(path))
    if target.suffix not in SUFFIXES:
        raise ExportError(
            f"can't export to {str(target)!r}: the suffix {target.suffix!r} is none of "
            f"{', '.join(SUFFIXES)}"
        )
    require_folder(target)
    return target


def require_folder(file: Path) -> None:
    """Raise unless a file can be written where it is to be.

    Raises ExportError: the folder does not exist or can't be written.
    """
    folder, wanted = str(file.parent), f"can't export to {str(file)!r}"
    if not file.parent.is_dir():
        raise ExportError(f"{wanted}: {folder!r} is not a folder; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ExportError(f"{wanted}: the folder {folder!r} can't be written")


def require_linker(target: str) -> None:
    """Raise unless there is a C++ compiler to link a library, and it is one for its processor.

    `target`: of the library, as a string or as JSON.
    Raises ExportError: no compiler is found, or the target names a processor that is not this
    machine's, and the compiler is not for it.
    """
    from tvm.support import cc

    compiler = cc.get_cc()
    if compiler is None or shutil.which(compiler.split()[0]) is None:
        raise ExportError(
            f"linking a .so needs a C++ compiler, and {compiler or 'g++, clang++ or c++'} is not "
            "on PATH; install one (apt-get install g++), name one in the environment variable CXX, "
            "or export to a .tar, which the machine that runs it links"
        )
    found = _TRIPLE.search(target)
    if found is None or _architecture(found[1]) == _architecture(platform.machine()):
        return
    asked = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
    links_for = asked.stdout.strip()
    if asked.returncode or _architecture(links_for) != _architecture(found[1]):
        raise ExportError(
            f"the library is for {found[1]}, and {compiler} links for {links_for or 'nothing'}; "
            f"name a cross compiler, such as CXX={found[1]}-g++, or export to a .tar, which the "
            "machine that runs it links"
        )


def _architecture(triple: str) -> str:
    name = triple.partition("-")[0].lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def _copy(origin: LoadedFile, draft: Path) -> None:
    suffix = origin.path.suffix
    if suffix != draft.suffix:
        raise ExportError(
            f"a library loaded from {str(origin.path)!r} can only be exported to a "
            f"{suffix} again; build the model to export it as {draft.suffix}"
        )
    origin.copy_to(draft)


@contextmanager
def _linking(
    library: FactoryModule, draft: Path, fcompile: Any, kwargs: dict[str, Any]
) -> Iterator[None]:
    """Say what linking needs where it fails."""
    if fcompile is None and kwargs.get("cc") is None:
        require_linker(library.metadata.target)
    folder = kwargs.get("workspace_dir") or tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < _LINK_BYTES:  # LLVM aborts the process where the disk is full
        raise ExportError(
            f"linking {draft.name!r} needs {_LINK_BYTES / 1e6:.0f} MB for temporary files, and "
            f"{folder} has {free / 1e6:.1f} MB: make room, or name another folder in TMPDIR"
        )
    try:
        yield
    except OSError as error:
        where = error.filename or tempfile.gettempdir()
        raise ExportError(f"linking {draft.name!r} failed: {where}: {error.strerror}") from error
    except Exception as error:
        raise ExportError(
            f"linking {draft.name!r} failed: {type(error).__name__}: {error}"
        ) from error


def linked_image(library: FactoryModule) -> bytes:
    """What this machine's C++ compiler links of a library's code, without weights and metadata.

    Raises ExportError: linking failed.
    """
    with TemporaryFolder("link") as folder:
        return _link(library, Path(folder, "library.so"), None, {"workspace_dir": folder})


def _link(
    library: FactoryModule, path: Path, fcompile: Callable[..., Any] | None, kwargs: dict[str, Any]
) -> bytes:
    """The same, linked at a path of its own as the caller has it."""
    with _linking(library, path, fcompile, kwargs):
        library.get_lib().export_library(str(path), fcompile=fcompile, **kwargs)
    image = path.read_bytes()
    path.unlink()
    return image


def _weights(library: FactoryModule) -> WriteWeights | None:
    if not library.params:
        return None
    return lambda stream: write_weights(stream, library.metadata, library.params)


def _write_archive(library: FactoryModule, draft: Path, kwargs: dict[str, Any]) -> None:
    def pack(output: str, files: Sequence[str], **_: Any) -> None:
        code_checksum = 0
        for name in files:
            code_checksum = zlib.crc32(Path(name).read_bytes(), code_checksum)
        described = Path(kwargs["workspace_dir"], container.OBJECT)
        with open(described, "x+b") as file, open(files[0], "rb") as like:
            described_by = sections(library.metadata, code_checksum, _weights(library))
            elf.write_object(file, like, described_by)
        with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as archive:
            for index, name in enumerate(files):
                archive.add(name, f"{index:04d}-{Path(name).name}", filter=_anonymous)
            archive.add(described, container.OBJECT, filter=_anonymous)

    library.get_lib().export_library(str(draft), fcompile=pack, **kwargs)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without what differs between users and times."""
    plain = tarfile.TarInfo(info.name)
    plain.size = info.size
    return plain
