"""The code of libraries: linked where it is objects, loaded, unloaded with the last reference."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler.support.tempdir import TemporaryFolder
from compiler.tvm_workarounds.fast_import import tvm_ffi


def load_code(descriptor: int) -> Any:
    """Load the shared library that is open as `descriptor`.

    The dynamic loader gets the descriptor's path in /proc, so it loads the open file itself. A file
    that replaced the open file at its path is never loaded.

    The dynamic loader returns a library that it already has if it knows the name. Descriptors are
    reused, so the name also spells the device and inode: as slashes and dots that do not change
    the path. The code is unloaded when the last reference to the module is gone.
    """
    status = os.fstat(descriptor)
    identity = f"{status.st_dev:b}{status.st_ino:064b}"
    spelling = identity.translate({ord("0"): "/", ord("1"): "/."})
    # tvm_ffi.load_module needs a suffix, which paths of descriptors lack.
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")
    return load(f"/proc/self/fd{spelling}/{descriptor}", "so")


def link_and_load(objects: Mapping[str, bytes]) -> Any:
    """Link the object files of an archive into a temporary library and load that."""
    from tvm.support import cc

    with TemporaryFolder("load") as folder:
        names = []
        for name, content in objects.items():
            Path(folder, name).write_bytes(content)
            names.append(str(Path(folder, name)))
        library = Path(folder, "library.so")
        cc.create_shared(str(library), names)
        return _load_path(library)


def runnable(module: Any) -> Any:
    """A module that can be run: of one that holds object files, the library they are linked to.

    Unlike what `tvm.runtime.Executable.jit` loads, the library goes with the module.
    """
    if not module._collect_from_import_tree(lambda each: each.kind in ("c", "static_library")):
        return module
    with TemporaryFolder("run") as folder:
        library = Path(folder, "library.so")
        module.export_library(str(library), workspace_dir=folder)
        return _load_path(library)


def _load_path(path: Path) -> Any:
    with open(path, "rb") as file:
        return load_code(file.fileno())
