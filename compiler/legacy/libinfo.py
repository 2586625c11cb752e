"""`tvm._ffi.libinfo`: where TVM's libraries and headers lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import tvm_ffi
from tvm import __version__, libinfo

from ..errors import LoadError

__all__ = ["__version__", "find_include_path", "find_lib_path"]

# What was libtvm.so first, then the runtime by itself.
_LIBRARIES = [
    f"{start}{stem}{end}"
    for stem in ("tvm_compiler", "tvm_runtime")
    for start, end in (("lib", ".so"), ("lib", ".dylib"), ("", ".dll"))
]


def find_lib_path(
    name: str | Sequence[str] | None = None,
    search_path: str | Sequence[str] | None = None,
    optional: bool = False,
) -> list[str] | None:
    """Paths of libraries among TVM's, and in further folders.

    `name`: file names; by default those of TVM itself, the compiler's before the runtime's.
    `search_path`: folders to look in after TVM's own. `optional`: return None where there is
    nothing.
    Raises LoadError: no such file, unless `optional`.
    """
    folders = [*libinfo.package_lib_paths(), *map(Path, _several(search_path))]
    return _found(_several(name) or _LIBRARIES, folders, "libraries", optional)


def find_include_path(
    name: str | Sequence[str] | None = None,
    search_path: str | Sequence[str] | None = None,
    optional: bool = False,
) -> list[str] | None:
    """Folders of TVM's headers and of those that they include, or paths of headers in them.

    `name`: headers or folders, as C++ includes them: "tvm/runtime/module.h". `search_path`: folders
    to look in after TVM's own. `optional`: return None where there is nothing.
    Raises LoadError: no such header, unless `optional`.
    """
    own = dict.fromkeys([libinfo.find_include_path(), *tvm_ffi.libinfo.include_paths()])
    folders = [Path(each) for each in (*own, *_several(search_path))]
    return _found(_several(name) or ["."], folders, "headers", optional)


def _several(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _found(
    names: Iterable[str], folders: Sequence[Path], what: str, optional: bool
) -> list[str] | None:
    names = list(names)
    found = [str(folder / name) for name in names for folder in folders if (folder / name).exists()]
    if found or optional:
        return found or None
    raise LoadError(f"there are no {what} {names} in {[str(each) for each in folders]}")
