"""Names of an old module in the modules that share them today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .removed_modules import Absent


def first_of(
    old: str, *modules: ModuleType, renamed: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose names several modules have today.

    `old`: the module's own name, for errors. `modules`: asked in this order. `renamed`: names that
    are others today.
    """
    where = " nor in ".join(module.__name__ for module in modules)

    def __getattr__(name: str) -> Any:
        for module in modules:
            found = getattr(module, (renamed or {}).get(name, name), None)
            if found is not None and type(found) is not Absent:
                return found
        raise AttributeError(f"{old}.{name} is neither in {where}, which took {old}'s place")

    return __getattr__
