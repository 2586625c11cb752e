"""The import hook that finds a module of TVM 0.18 where it is today."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ..errors import LegacyImportError
from .names import GONE, MOVED


def today(name: str) -> str | None:
    """Today's name of an old module, itself or below a package that moved."""
    package, below = name, ""
    while package not in MOVED:
        package, dot, last = package.rpartition(".")
        if not dot:
            return None
        below = f".{last}{below}"
    return MOVED[package] + below


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the old names of `names.MOVED`; says of those in `names.GONE` what to use instead."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(("tvm.", "vta")):
            return None
        self._refuse_what_is_gone(fullname)
        module = today(fullname)
        if module is None:
            return None
        if not _exists(module):
            raise LegacyImportError(
                f"{fullname} has no counterpart: {module} does not exist; "
                f"docs/relay_language.md lists what is there",
                name=fullname,
            )
        return importlib.machinery.ModuleSpec(fullname, self, origin=module, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.origin or "")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module is complete already; it keeps the spec of its own name."""
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__ = spec.loader_state

    @staticmethod
    def _refuse_what_is_gone(fullname: str) -> None:
        for name, instead in GONE.items():
            if fullname == name or fullname.startswith(name + "."):
                raise LegacyImportError(
                    f"{fullname} is gone from TVM, and nothing stands for it: {instead}",
                    name=fullname,
                )


def forget() -> None:
    """Drop the old names from the modules that Python has loaded, and from their packages."""
    for name in [name for name in sys.modules if today(name) is not None]:
        module = sys.modules.pop(name)
        package, _, last = name.rpartition(".")
        if name in MOVED and vars(sys.modules[package]).get(last) is module:
            delattr(sys.modules[package], last)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
