"""The import hook that finds a module of TVM 0.18 where it is today."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import ChainMap
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from ..errors import LegacyImportError
from .module_map import ABSENT, EXTENDED, GONE, MOVED, MXNET, OF_06
from .name_completion import OWN, complete, instead_of_module
from .patches import Patches
from .removed_modules import AbsentModule, NoCounterpart

# The names that are on: those of TVM 0.6 and of MXNet while a script that uses them runs, and
# `MOVED`.
_moved: ChainMap[str, str] = ChainMap({}, {}, MOVED)


def today(name: str) -> str | None:
    """Today's name of an old module, itself or below a package that moved."""
    package, below = name, ""
    while package not in _moved:
        package, dot, last = package.rpartition(".")
        if not dot:
            return None
        below = f".{last}{below}"
    return _moved[package] + below


def use_names_of_06(on: bool) -> None:
    """Find the modules that only TVM 0.6 had, or no longer."""
    _moved.maps[0] = OF_06 if on else {}


def use_names_of_mxnet(on: bool) -> None:
    """Let `import mxnet` import `compiler.mxnet`, or no longer."""
    _moved.maps[1] = MXNET if on else {}


def uses_names_of_06() -> bool:
    """Whether they are found."""
    return _moved.maps[0] is OF_06


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the old names of `names.MOVED`; says of those in `names.GONE` what to use instead.

    Modules of `names.EXTENDED` are TVM's own, with the old names added once they are imported.
    """

    def __init__(self, patches: Patches) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        old = f"tvm.{fullname.partition('.')[2]}"
        if fullname.startswith(OWN):
            is_old = old in _moved or bool(absent_by_row(old))
            if not is_old and exists(fullname):
                return self._of_today(fullname, path)
            if not is_old and not instead_of_module(old):
                return None
            fullname = old
        if not fullname.startswith(("tvm.", "vta", "nnvm", "topi", "mxnet")):
            return None
        self._refuse_what_is_gone(fullname)
        absent = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if absent_by_row(fullname):
            return absent
        module = None if fullname in EXTENDED else today(fullname)
        if module is None:
            spec = self._of_today(fullname, path)
            is_lost = spec is None and instead_of_module(fullname)
            return absent if is_lost and not self._others_find(fullname, path) else spec
        if not exists(module):
            if instead_of_module(fullname):
                return absent
            package, _, last = fullname.rpartition(".")
            # its package may know what to use instead
            getattr(sys.modules.get(package), last, None)
            page = "gluon" if fullname.startswith("mxnet") else "relay_language"
            raise NoCounterpart(
                f"{fullname} has no counterpart: {module} does not exist; "
                f"docs/{page}.md lists what is there",
                name=fullname,
            )
        is_package = not fullname.endswith(".__main__")
        return importlib.machinery.ModuleSpec(fullname, self, origin=module, is_package=is_package)

    def get_code(self, fullname: str) -> CodeType | None:
        """The code that `python -m` runs."""
        spec = importlib.util.find_spec(today(fullname) or fullname)
        loader: Any = spec.loader if spec is not None else None
        code: CodeType | None = loader.get_code(spec.name) if loader and spec else None
        return code

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if not spec.origin:
            instead = absent_by_row(spec.name) or instead_of_module(spec.name)
            return AbsentModule(spec.name, instead)
        module = importlib.import_module(spec.origin)
        complete(spec.name, module, self._patches)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module is complete already; it keeps the spec of its own name."""
        spec = module.__spec__
        if spec is not None and spec.loader is self and spec.loader_state is not None:
            module.__spec__ = spec.loader_state

    def extend(self, name: str) -> None:
        """Add the old names to a module of TVM that is imported."""
        importlib.import_module(EXTENDED[name]).patch(self._patches)

    def _of_today(
        self, fullname: str, path: Sequence[str] | None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module that TVM still has, with the old names added."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                if fullname in EXTENDED:
                    self.extend(fullname)
                complete(f"tvm.{fullname.partition('.')[2]}", module, self._patches)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _others_find(self, fullname: str, path: Sequence[str] | None) -> bool:
        """Whether another finder has the module, as that of TVMScript's dialects may."""
        others = (each for each in list(sys.meta_path) if each is not self)
        return any(each.find_spec(fullname, path) is not None for each in others)

    @staticmethod
    def _refuse_what_is_gone(fullname: str) -> None:
        for name, instead in GONE.items():
            if fullname == name or fullname.startswith(name + "."):
                raise LegacyImportError(
                    f"{fullname} is gone from TVM, and nothing stands for it: {instead}",
                    name=fullname,
                )


def absent_by_row(name: str) -> str:
    """What to use instead of a module of `names.ABSENT`, or of one below; "" for all others."""
    while name and name not in MOVED:
        if name in ABSENT:
            return ABSENT[name]
        package = name.rpartition(".")[0]
        if f"{package}." in ABSENT:
            return ABSENT[f"{package}."]
        name = package
    return ""


def forget() -> None:
    """Drop the old names from the modules that Python has loaded, and from their packages."""
    old = [
        name
        for name, module in sys.modules.items()
        if today(name) is not None or isinstance(module, AbsentModule)
    ]
    for name in reversed(old):  # a package after its modules
        module = sys.modules.pop(name)
        package, _, last = name.rpartition(".")
        owner = sys.modules.get(package)
        if owner is None or vars(owner).get(last) is not module:
            continue
        if sys.modules.get(f"{owner.__name__}.{last}") is module:  # a module of today's package
            continue
        is_old = owner.__name__.startswith(("tvm", "compiler.legacy."))
        if is_old or isinstance(module, AbsentModule):
            delattr(owner, last)


def exists(module: str) -> bool:
    """Whether Python finds a module of today; found without importing its packages.

    Finders are asked under Python's import lock: one that imports, as `importlib.util.find_spec`
    imports the packages around a module, waits for ever for a thread that imports the same.
    """
    name = ""
    path: list[str] | None = None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        found: Any = sys.modules.get(name)
        if found is None:
            found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None:
            return False
        spec = getattr(found, "__spec__", found)
        path = list(getattr(spec, "submodule_search_locations", None) or ())
    return True
