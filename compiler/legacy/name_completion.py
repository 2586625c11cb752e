"""Names that modules of older TVM versions had, found by attribute or star import.

`passed_on_names.txt` has the names that star imports brought, per line `module name=origin...`.
`old_words.txt` has the names that today's modules lack, per line `package name...`: a name with
"=origin" was imported from there, one with "=/" is a module that was loaded with its package, and
one with "/" a module that is missing. The rows "rule" of `lost_names.txt` say what to use instead
of a package's other names; the longest package that has a row decides.
`scripts/conformance/public_names.py` writes both lists from TVM's sources.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import LegacyImportError
from ..support.text_tables import names_in_state, read_table
from .module_map import NAMES
from .patches import Patches
from .removed_modules import Absent, AbsentModule, NoCounterpart

_BINDINGS = "it was a binding of TVM's C++ functions; call the public functions of its module"
# Packages that scripts know as TVM's; `from tvm.relay import prelude` asks them by their own name.
OWN = ("compiler.relay.", "compiler.auto_scheduler.", "compiler.autotvm.")
_resolving = threading.local()
_RULES = names_in_state(read_table(__file__, "lost_names.txt"), "rule")


@functools.cache
def _read(file: str) -> dict[str, dict[str, str]]:
    """Per module or package the names, with their origins; "" for names without one."""
    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    rows = (line.split() for line in lines)
    return {
        owner: {name: origin for name, _, origin in (each.partition("=") for each in names)}
        for owner, *names in rows
    }


@functools.cache
def passed_on() -> Mapping[str, Mapping[str, str]]:
    """Per old module the names that it answers; "" if the module has the name itself."""
    table = _read("passed_on_names.txt")
    for full, origin in NAMES.items():
        module, _, name = full.rpartition(".")
        table.setdefault(module, {})[name] = (
            origin.removeprefix("=") if "=" in origin else f"!{origin}"
        )
    return table


def _around(name: str) -> Iterator[str]:
    """A module and the packages around it, the nearest first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _rule(name: str) -> str:
    return next((_RULES[each] for each in _around(name) if each in _RULES), "")


def instead_of_module(name: str) -> str:
    """Replacement for a removed module of older TVM versions; "" for any other module.

    Raises LegacyImportError: the package has a function of the module's name.
    """
    package, _, last = name.rpartition(".")
    if not any(f"{last}/" in _read("old_words.txt").get(each, ()) for each in _around(package)):
        return ""
    namesake = vars(sys.modules.get(package, sys)).get(last)  # which the module would replace
    if namesake is None or isinstance(namesake, (Absent, AbsentModule)):
        return _rule(name)
    instead = f"{last} itself is found by `from {package} import {last}`; {_rule(name)}"
    raise LegacyImportError(f"module {name} is gone from TVM: {instead}", name=name)


def _origin_of(old: str, name: str) -> str:
    """Current path of an old name, or "!" and its replacement; "" if no TVM version had it."""
    if passed_on().get(old, {}).get(name):
        return passed_on()[old][name]
    for package in _around(old):
        known = _read("old_words.txt").get(package, {})
        if name in known:
            is_module = known[name] == "/"
            return f"{package}.{name}" if is_module else known[name] or f"!{_rule(old)}"
    return ""


def complete(old: str, module: ModuleType, patches: Patches) -> None:
    """Let a module answer the names of an old one, and star imports bring them."""
    before = vars(module).get("__getattr__")

    def __getattr__(name: str) -> Any:
        if before is not None:
            try:
                return before(name)
            except (AttributeError, ImportError) as error:
                is_refused = (
                    isinstance(error, LegacyImportError) and type(error) is not NoCounterpart
                )
                if is_refused or not _origin_of(old, name):
                    raise
        origin = _origin_of(old, name)
        if not origin:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        own = f"{module.__name__}.{name}"  # a module of today's package that is not loaded yet
        if PathFinder.find_spec(own, getattr(module, "__path__", ())):
            return importlib.import_module(own)
        return _from_origin(old, name, origin)

    names = passed_on().get(old, {})
    if names or _rule(old):
        patches.set(module, "__getattr__", __getattr__)
    if names:
        public = [each for each in vars(module) if not each.startswith("_")]
        known = vars(module).get("__all__", public)
        brought = [name for name, origin in names.items() if not origin.startswith("!")]
        patches.set(module, "__all__", sorted({*known, *brought}))


def complete_loaded(patches: Patches) -> None:
    """`complete` the modules that are loaded, TVM's own and those that scripts know as TVM's."""
    for name, module in list(sys.modules.items()):
        is_known = name == "tvm" or name.startswith(("tvm.", *OWN))
        if is_known and getattr(module, "__name__", "") == name:
            complete(f"tvm.{name.partition('.')[2]}".rstrip("."), module, patches)


def _from_origin(old: str, name: str, origin: str) -> Any:
    if origin.startswith("!"):
        return Absent(f"{old}.{name}", origin[1:])
    if any(part.startswith("_") for part in origin.split(".")[1:]):
        return Absent(f"{old}.{name}", _BINDINGS)
    found = _resolve(origin)
    return Absent(f"{old}.{name}", _rule(old)) if found is None else found


def _resolve(path: str) -> Any:
    """The module, or the attribute of a module or class, at a path; None if there is none."""
    wanted = vars(_resolving).setdefault("paths", set())
    if path in wanted:  # the module there looks for it here
        raise AttributeError(path)
    wanted.add(path)
    try:
        owner, _, last = path.rpartition(".")
        found = getattr(_object_at(owner), last, None) if owner else None
        return importlib.import_module(path) if found is None else found
    except (AttributeError, NoCounterpart, ModuleNotFoundError):
        return None
    finally:
        wanted.discard(path)


def _object_at(path: str) -> Any:
    """A module, or a class of a module."""
    owner, _, last = path.rpartition(".")
    is_class = last[:1].isupper()
    return (
        getattr(importlib.import_module(owner), last) if is_class else importlib.import_module(path)
    )
