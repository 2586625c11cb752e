"""`import baton_tvm`: the package `compiler`, under a name that no user's module has.

Python searches the folder of a script first, so a `compiler.py` there would shadow Baton's package.
This package finds `compiler` next to itself, independently of `sys.path`, and is replaced by it:
`baton_tvm is compiler`, `baton_tvm.relay is compiler.relay`. From then on `import compiler` is
Baton's as well.

Raises ImportError: another module `compiler` was imported before.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_ALIAS = __name__.rpartition(".")[2]
_HERE = Path(__file__).resolve()
# Next to this package where it is installed; two folders above it in a checkout.
_FOLDERS = (_HERE.parents[1] / "compiler", _HERE.parents[2])


class _AliasFinder(MetaPathFinder):
    """Finds `baton_tvm.x` as `compiler.x`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(_ALIAS + "."):
            return None
        real = importlib.util.find_spec("compiler" + name.removeprefix(_ALIAS))
        if real is None:
            return None
        is_package = real.submodule_search_locations is not None
        return ModuleSpec(name, _AliasLoader(real), origin=real.origin, is_package=is_package)


class _AliasLoader(Loader):
    """Loads a module under its own name; the importer enters it under the alias as well."""

    def __init__(self, real: ModuleSpec) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(self._real.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._real  # the importer has replaced it by the alias's

    def get_code(self, name: str) -> CodeType:
        """The code that `python -m` runs."""
        loader: Any = self._real.loader
        code: CodeType = loader.get_code(self._real.name)
        return code


def _load_compiler() -> ModuleType:
    """The package `compiler` next to this one."""
    path = next(each for each in _FOLDERS if (each / "_import_guard.py").is_file()) / "__init__.py"
    loaded = sys.modules.get("compiler")
    if loaded is not None:
        file = loaded.__file__ or ", ".join(loaded.__path__)
        if os.path.realpath(file) == str(path):
            return loaded
        raise ImportError(
            f"Baton's package 'compiler' ({path.parent}) collides with the module of that name in "
            f"{file}, which is loaded already: import {_ALIAS} before it, or rename it"
        )
    spec = importlib.util.spec_from_file_location("compiler", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"can't load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["compiler"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["compiler"]
        raise
    return module


if __name__ == _ALIAS:  # not as `compiler.support.baton_tvm`
    sys.modules[_ALIAS] = _load_compiler()
    sys.meta_path.insert(0, _AliasFinder())
