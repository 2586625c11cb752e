"""Knobs of a schedule: splits, reorders, annotations and options, and the entity that sets them.

A `ConfigEntity` is one point of a template's space, with the knob names and value types of
AutoTVM records, so that a record's `config.entity` reads straight into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SplitEntity:
    """Factors of one split axis, outermost first; `size[-1]` is the innermost extent.

    A factor of -1 stands for whatever the axis leaves over.
    """

    size: tuple[int, ...]


@dataclass(frozen=True)
class ReorderEntity:
    """A permutation: position i of the new order holds old axis `perm[i]`."""

    perm: tuple[int, ...]


@dataclass(frozen=True)
class AnnotateEntity:
    """One annotation ("none", "vec", "unroll", ...) for each axis."""

    anns: tuple[str, ...]


@dataclass(frozen=True)
class OtherOptionEntity:
    """A plain value: int, float, bool or string."""

    val: Any


Knob = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity
_KINDS: dict[str, tuple[type, str]] = {
    "sp": (SplitEntity, "size"),
    "re": (ReorderEntity, "perm"),
    "an": (AnnotateEntity, "anns"),
    "ot": (OtherOptionEntity, "val"),
}


@dataclass(frozen=True)
class ConfigEntity(Mapping[str, Knob]):
    """The knobs of one schedule, by name.

    Attributes
    ----------
    knobs : dict
        Knob name to entity.
    source : str
        Where the values come from, as the build report prints it: "topi:fallback", or
        "topi:<log>:<line>".
    is_fallback : bool
        True when no tuning record set the values.
    cost : float
        Seconds that the record's author measured; infinity for a fallback.
    """

    knobs: dict[str, Knob] = field(default_factory=dict)
    source: str = "topi:fallback"
    is_fallback: bool = True
    cost: float = float("inf")

    def __getitem__(self, name: str) -> Knob:
        return self.knobs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.knobs)

    def __len__(self) -> int:
        return len(self.knobs)

    def size(self, name: str) -> tuple[int, ...]:
        """Factors of the split knob `name`."""
        knob = self.knobs[name]
        assert isinstance(knob, SplitEntity)
        return knob.size

    def val(self, name: str) -> Any:
        """Value of the option knob `name`."""
        knob = self.knobs[name]
        assert isinstance(knob, OtherOptionEntity)
        return knob.val

    def to_entity(self) -> list[list[Any]]:
        """The `config.entity` list of an AutoTVM 0.2 record: [name, kind, value] each."""
        rows: list[list[Any]] = []
        for name, knob in self.knobs.items():
            for kind, (cls, attribute) in _KINDS.items():
                if isinstance(knob, cls):
                    value = getattr(knob, attribute)
                    rows.append([name, kind, list(value) if isinstance(value, tuple) else value])
        return rows

    @staticmethod
    def from_entity(
        rows: list[list[Any]],
        source: str = "topi:fallback",
        is_fallback: bool = True,
        cost: float = float("inf"),
    ) -> ConfigEntity:
        """Read the `config.entity` list of an AutoTVM 0.2 record.

        Raises
        ------
        ValueError
            A row is not [name, kind, value] with kind one of sp, re, an, ot.
        """
        knobs: dict[str, Knob] = {}
        for row in rows:
            if not isinstance(row, (list, tuple)) or len(row) != 3 or row[1] not in _KINDS:
                raise ValueError(f"knob {row!r} is not [name, 'sp'|'re'|'an'|'ot', value]")
            name, kind, value = row
            cls, _ = _KINDS[kind]
            knobs[name] = cls(tuple(value) if kind != "ot" else value)
        return ConfigEntity(knobs, source, is_fallback, cost)

    def dumps(self) -> str:
        """Knobs as one JSON string, for a block annotation."""
        return json.dumps(self.to_entity(), separators=(",", ":"))


def split(*size: int) -> SplitEntity:
    """Shorthand for a split knob."""
    return SplitEntity(tuple(size))


def option(val: Any) -> OtherOptionEntity:
    """Shorthand for an option knob."""
    return OtherOptionEntity(val)
