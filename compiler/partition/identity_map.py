"""A dict whose keys are TVM objects, told apart by identity.

Two references to one TVM object are different Python objects, so that a plain dict would compare
them with TVM's `==`, which for expressions takes longer than the look-up itself.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

Value = TypeVar("Value")


class IdentityMap(MutableMapping[Any, Value]):
    """A mutable mapping in order of insertion. It keeps its keys alive."""

    def __init__(self) -> None:
        # The hash of a TVM object is its address.
        self._entries: dict[int, tuple[Any, Value]] = {}

    def __getitem__(self, key: Any) -> Value:
        return self._entries[hash(key)][1]

    def __setitem__(self, key: Any, value: Value) -> None:
        self._entries[hash(key)] = (key, value)

    def __delitem__(self, key: Any) -> None:
        del self._entries[hash(key)]

    def __contains__(self, key: object) -> bool:
        return hash(key) in self._entries

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        found = self._entries.get(hash(key))
        return default if found is None else found[1]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)
