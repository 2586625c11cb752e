"""Lazy package attributes, so that importing a package costs nothing until it is used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def by_module(names: Mapping[str, str]) -> dict[str, str]:
    """Modules by name for `lazy_attributes`; `names` has the names of each: {".task": "Task f"}."""
    return {name: module for module, text in names.items() for name in text.split()}


def lazy_attributes(
    package: str, where: Mapping[str, str], others: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """A module-level `__getattr__` (PEP 562) for `package`, whose `dir` lists the names too.

    `where`: attribute name to the module, relative to the package, that defines it. An attribute of
    the same name as its module's last part is the module itself. `others`: finds attributes that
    are neither there nor modules of the package.
    """

    def __getattr__(name: str) -> Any:
        if name not in where:
            plain = not name.startswith("_")
            spec = importlib.util.find_spec(f"{package}.{name}") if others and plain else None
            if others and plain and (spec is None or spec.origin is None):  # a folder of data
                return others(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(where[name], package)
        except ModuleNotFoundError as error:
            if error.name != importlib.util.resolve_name(where[name], package):
                raise
            raise ModuleNotFoundError(
                f"{error.name} is not in baton-runtime, which runs libraries; install baton-tvm",
                name=error.name,
            ) from None
        return module if where[name].endswith("." + name) else getattr(module, name)

    module = sys.modules[package]
    vars(module).setdefault("__dir__", lambda: sorted({*vars(module), *where}))
    return __getattr__
