"""Names that TVM's modules passed on to those who imported them, by attribute or star import.

`tvm.relay.dataflow_pattern` imported `Expr` for itself, and scripts got it by
`from tvm.relay.dataflow_pattern import *`. `passed_on_names.txt` lists these names, from TVM's
sources (`scripts/conformance/public_names.py`), per line `module name... name=origin...`. Rows
"name" of `modules.txt` and `lost_names.txt` have what modules lost otherwise.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import LegacyImportError
from ..support.text_tables import members_in_state, read_table
from .module_map import NAMES
from .patches import Patches
from .removed_modules import Absent

_BINDINGS = "it was a binding of TVM's C++ functions; call the public functions of its module"
_DATA = Path(__file__).with_name("passed_on_names.txt")


@functools.cache
def passed_on() -> Mapping[str, Mapping[str, str]]:
    """Per old module the names, with their origins; "" if the module has the name itself."""
    table: dict[str, dict[str, str]] = {}
    for line in _DATA.read_text().splitlines():
        module, *names = line.split()
        table[module] = {each.partition("=")[0]: each.partition("=")[2] for each in names}
    lost = read_table(__file__, "lost_names.txt")
    for full, origin in (NAMES | members_in_state(lost, "names")).items():
        module, _, name = full.rpartition(".")
        table.setdefault(module, {})[name] = (
            origin.removeprefix("=") if "=" in origin else f"!{origin}"
        )
    return table


def complete(old: str, module: ModuleType, patches: Patches) -> None:
    """Let a module answer the names of an old one, and star imports bring them."""
    names = passed_on().get(old, {})
    before = vars(module).get("__getattr__")

    def __getattr__(name: str) -> Any:
        if before is not None:
            try:
                return before(name)
            except LegacyImportError:
                raise
            except (AttributeError, ImportError):
                if not names.get(name):
                    raise
        if names.get(name):
            return _from_origin(old, name, names[name])
        raise AttributeError(f"module {old!r} has no attribute {name!r}")

    if names:
        patches.set(module, "__getattr__", __getattr__)
        public = [each for each in vars(module) if not each.startswith("_")]
        known = vars(module).get("__all__", public)
        brought = [name for name, origin in names.items() if not origin.startswith("!")]
        patches.set(module, "__all__", sorted({*known, *brought}))


def complete_loaded(patches: Patches) -> None:
    """`complete` those of TVM's own modules that are loaded."""
    for old in passed_on():
        module = sys.modules.get(old)
        if module is not None and module.__name__ == old:
            complete(old, module, patches)


def _from_origin(old: str, name: str, origin: str) -> Any:
    if origin.startswith("!"):
        return Absent(f"{old}.{name}", origin[1:])
    owner, _, last = origin.rpartition(".")
    if any(part.startswith("_") for part in origin.split(".")[1:]):
        return Absent(f"{old}.{name}", _BINDINGS)
    if owner:
        found = getattr(_object_at(owner), last, None)
        if found is not None:
            return found
    return importlib.import_module(origin)


def _object_at(path: str) -> Any:
    """A module, or a class of a module."""
    owner, _, last = path.rpartition(".")
    is_class = last[:1].isupper()
    return (
        getattr(importlib.import_module(owner), last) if is_class else importlib.import_module(path)
    )
