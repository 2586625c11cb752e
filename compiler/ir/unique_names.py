"""Unique names."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, ... if taken; the result is taken from then on."""
        name, count = wanted, self._counts.get(wanted, 0)
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        self._counts[wanted] = count
        return name
