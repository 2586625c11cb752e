"""Names of the operators that are put together by `sym.<operator>(...)`."""

from __future__ import annotations

import threading
from collections import Counter
from contextvars import ContextVar


class NameManager:
    """Numbers unnamed operators, "convolution0", ...; in a `with` block, those of this thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def get(self, name: str | None, hint: str) -> str:
        """The given name, or a new one that starts with the hint."""
        if name:
            return name
        with self._lock:
            self._counts[hint] += 1
            return f"{hint}{self._counts[hint] - 1}"

    def __enter__(self) -> NameManager:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])


class Prefix(NameManager):
    """Puts a prefix before all names."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """Return the prefix and the given name, or a new one."""
        return self._prefix + super().get(name, hint)


_CURRENT: ContextVar[tuple[NameManager, ...]] = ContextVar("names", default=(NameManager(),))


def new_name(name: str | None, hint: str) -> str:
    """A name by the manager of the innermost `with` block."""
    return _CURRENT.get()[-1].get(name, hint)
