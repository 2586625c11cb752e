"""Attributes set on TVM's modules and classes, and taken back again."""

from __future__ import annotations

from typing import Any

from .removed_modules import Absent

_ABSENT = object()


class Patches:
    """Attributes that were set, with what stood there before."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        """Whether anything is set."""
        return bool(self._undo)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class."""
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def add(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute unless today's TVM has one of that name."""
        found = getattr(owner, name, _ABSENT)
        if found is _ABSENT or isinstance(found, Absent):
            self.set(owner, name, value)

    def set_item(self, table: dict[str, Any], key: str, value: Any) -> None:
        """Replace the value of a key that a dictionary has."""
        self._undo.append((table, key, table[key]))
        table[key] = value

    def undo(self) -> None:
        """Put everything back, the last first."""
        while self._undo:
            owner, name, before = self._undo.pop()
            if isinstance(owner, dict):
                owner[name] = before
            elif before is not _ABSENT:
                setattr(owner, name, before)
            elif name in vars(owner):  # old modules are dropped from their packages before
                delattr(owner, name)
