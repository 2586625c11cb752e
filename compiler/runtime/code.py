"""The code of libraries: linked where it is objects, loaded, unloaded with the last reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm_ffi

from compiler.temporary import TemporaryFolder


def load_code(path: Path) -> Any:
    """Hand the file to the dynamic loader, under a spelling of its path that no other file has.

    The dynamic loader returns the library it already has when it knows the name, even if
    another file lies there by now; only for an unknown name does it compare the files. Slashes
    and dots that change nothing about the path spell which file it is. The code is unloaded when
    nothing refers to the module any more.
    """
    status = path.stat()
    identity = f"{status.st_dev:b}{status.st_ino:064b}"
    spelling = identity.translate({ord("0"): "/", ord("1"): "/."})
    name = f"{path.parent}{spelling}/{path.name}"
    return tvm_ffi.load_module(name, keep_module_alive=False)


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
        return load_code(library)


def runnable(module: Any) -> Any:
    """A module that can be run: of one that holds object files, the library they are linked to.

    Unlike what `tvm.runtime.Executable.jit` loads, the library goes with the module.
    """
    if not module._collect_from_import_tree(lambda each: each.kind in ("c", "static_library")):
        return module
    with TemporaryFolder("run") as folder:
        library = Path(folder, "library.so")
        module.export_library(str(library), workspace_dir=folder)
        return load_code(library)
