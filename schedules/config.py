"""Knobs of a schedule: splits, reorders, annotations and options, and the entity that sets them.

A `ConfigEntity` is one point of a template's space, with the knob names and value types of
AutoTVM records, so that a record's `config.entity` reads straight into it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


class InstantiationError(ValueError):
    """A config that its template can't turn into a schedule."""


class Factors(tuple[int, ...]):
    """The factors of a split; equal to a list of the same numbers, which they were in old TVM."""

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@dataclass(frozen=True)
class SplitEntity:
    """Factors of one split axis, outermost first; `size[-1]` is the innermost extent.

    A factor of -1 is inferred from the extent of the axis.
    """

    size: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", Factors(self.size))

    def apply(self, sch: Any, *place: Any) -> list[Any]:
        """Split a loop; the loops that result, outermost first.

        `apply(sch, loop)` splits a loop of a `tvm.s_tir.Schedule`, `apply(s, op, axis)` one of a
        TE schedule.

        The first factor is never used. As in AutoTVM, the remaining loop is split by the product
        of the other factors, by that of all but the first of these, and so on; one that does not
        divide makes a guarded tail, and one beyond the extent is the extent.
        """
        loops = []
        *op, loop = place
        if op:
            stage = sch[op[0]]
            for position in range(1, len(self.size)):
                outer, loop = stage.split(loop, math.prod(self.size[position:]))
                loops.append(outer)
            return [*loops, loop]
        for position in range(1, len(self.size)):
            extent = sch.get(loop).extent
            factor = math.prod(self.size[position:])
            if hasattr(extent, "value"):
                factor = min(factor, int(extent))
            outer, loop = sch.split(loop, [None, factor])
            loops.append(outer)
        return [*loops, loop]


@dataclass(frozen=True)
class ReorderEntity:
    """A permutation: position i of the new order holds old axis `perm[i]`."""

    perm: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "perm", tuple(self.perm))

    def apply(self, sch: Any, *place: Any) -> list[Any]:
        """Reorder loops; they come back in their new order.

        `apply(sch, loops)` is for a `tvm.s_tir.Schedule`, `apply(s, op, axes)` for a TE schedule.
        Entries of the permutation beyond the loops handed in are passed over.
        """
        *op, loops = place
        order = [loops[axis] for axis in self.perm if axis < len(loops)]
        (sch[op[0]] if op else sch).reorder(*order)
        return order


@dataclass(frozen=True)
class AnnotateEntity:
    """One annotation ("none", "vec", "unroll", ...) for each axis."""

    anns: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "anns", tuple(self.anns))

    def apply(self, sch: Any, *place: Any, **options: Any) -> list[Any]:
        """Annotate loops; the loops after fusion.

        `apply(sch, loops, max_unroll=None, vec_size=None)` is for a `tvm.s_tir.Schedule`;
        `apply(s, op, axes, axis_lens=None, max_unroll=None, vec_size=None, cfg=None,
        source=None)` for a TE schedule, where lists of tensors in `source` are computed at the
        axes that this annotation names by their numbers.

        Raises InstantiationError: a loop to unroll is longer than `max_unroll`, or one to vectorize
        is of a length that `vec_size` lacks.
        """
        if isinstance(place[0], (list, tuple)):
            return self._apply(sch, *place, **options)
        return self._apply_te(sch, *place, **options)

    def _apply_te(
        self,
        sch: Any,
        op: Any,
        axes: Sequence[Any],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Any = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        from tvm import te

        stage, axes = sch[op], list(axes)
        if source is not None:
            for tensors, axis in zip(source, self.anns):
                for tensor in tensors:
                    sch[tensor].compute_at(stage, axes[int(axis)])
            return axes
        lengths = list(axis_lens or [])
        for index, annotation in enumerate(self.anns):
            loop = axes[index]
            if annotation == "fuse":
                axes[index + 1] = stage.fuse(loop, axes[index + 1])
            elif annotation == "unroll":
                if max_unroll and lengths and lengths[index] > max_unroll:
                    raise InstantiationError(f"too large unroll: {lengths[index]} > {max_unroll}")
                stage.unroll(loop)
            elif annotation == "vec":
                if vec_size and lengths and lengths[index] not in vec_size:
                    raise InstantiationError(
                        f"wrong vector length {lengths[index]}, not of {vec_size}"
                    )
                stage.vectorize(loop)
            elif annotation != "none":
                stage.bind(loop, te.thread_axis(annotation))
        return axes

    def _apply(
        self,
        sch: Any,
        loops: Sequence[Any],
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
    ) -> list[Any]:
        done: list[Any] = []
        fused: Any = None
        for annotation, loop in zip(self.anns, loops):
            if fused is not None:
                loop, fused = sch.fuse(fused, loop), None
            extent = int(getattr(sch.get(loop).extent, "value", 0))
            if annotation == "fuse":
                fused = loop
                continue
            if annotation == "unroll":
                if max_unroll is not None and extent > max_unroll:
                    raise InstantiationError(f"too large unroll: {extent} > {max_unroll}")
                sch.unroll(loop)
            elif annotation == "vec":
                if vec_size is not None and extent not in vec_size:
                    raise InstantiationError(f"wrong vector length {extent}, not of {vec_size}")
                sch.vectorize(loop)
            elif annotation != "none":
                sch.bind(loop, annotation)
            done.append(loop)
        return done if fused is None else [*done, fused]


@dataclass(frozen=True)
class OtherOptionEntity:
    """A plain value: int, float, bool or string."""

    val: Any


_MAX_FACTOR = 2**31 - 1


def _are_factors(size: Sequence[Any]) -> bool:
    """Whether they are positive integers, of which one may be open (-1)."""
    return sum(factor == -1 for factor in size) <= 1 and all(
        type(factor) is int and (factor == -1 or 0 < factor <= _MAX_FACTOR) for factor in size
    )


Knob = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity
_KINDS: dict[str, tuple[type, str]] = {
    "sp": (SplitEntity, "size"),
    "re": (ReorderEntity, "perm"),
    "an": (AnnotateEntity, "anns"),
    "ot": (OtherOptionEntity, "val"),
}


@dataclass(frozen=True)
class ConfigEntity(Mapping[str, Knob]):
    """The knobs of one schedule, by name."""

    knobs: dict[str, Knob] = field(default_factory=dict)  # knob name to entity
    # Where the values come from, as the build report prints it: "topi:fallback", or
    # "topi:<log>:<line>"
    source: str = "topi:fallback"
    is_fallback: bool = True  # true when no tuning record set the values
    cost: float = float("inf")  # seconds that the record's author measured; infinity for a fallback
    index: int = -1  # place in the space that it was taken from; -1 if unknown
    level: int = 0  # how far out the dispatch context was that knew it; 0 is the innermost

    def __getitem__(self, name: str) -> Knob:
        return self.knobs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.knobs)

    def __len__(self) -> int:
        return len(self.knobs)

    def __str__(self) -> str:
        """As TVM's tuners print a config: knobs and values, the hash of a template, the index."""
        shown = ", ".join(f"({name!r}, {value})" for name, _, value in self.to_entity())
        return f"[{shown}],None,{self.index}"

    def size(self, name: str) -> tuple[int, ...]:
        """Factors of the split knob `name`."""
        knob = self.knobs[name]
        assert isinstance(knob, SplitEntity)
        return knob.size

    def val(self, name: str, default: Any = None) -> Any:
        """Value of the option knob `name`; older records may lack one that has a default."""
        if default is not None and name not in self.knobs:
            return default
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

        Raises ValueError: a row is not [name, kind, value] with kind one of sp, re, an, ot.
        """
        knobs: dict[str, Knob] = {}
        for row in rows:
            if not isinstance(row, (list, tuple)) or len(row) != 3 or row[1] not in _KINDS:
                raise ValueError(f"knob {row!r} is not [name, 'sp'|'re'|'an'|'ot', value]")
            name, kind, value = row
            cls, _ = _KINDS[kind]
            knobs[name] = cls(tuple(value) if kind != "ot" else value)
        return ConfigEntity(knobs, source, is_fallback, cost)

    def to_json_dict(self) -> dict[str, Any]:
        """The `config` object of an AutoTVM 0.2 record."""
        return {"index": self.index, "code_hash": None, "entity": self.to_entity()}

    @staticmethod
    def from_json_dict(config: Mapping[str, Any]) -> ConfigEntity:
        """Read the `config` object of an AutoTVM 0.2 record; raises as `from_entity` does."""
        found = ConfigEntity.from_entity(config["entity"], is_fallback=False)
        return replace(found, index=int(config.get("index", -1)))

    def define_knob(self, name: str, *_: Any, **__: Any) -> None:
        """Nothing: the knobs are set. A template runs with a space and with a config alike."""

    define_split = define_reorder = define_annotate = define_knob

    def axis(self, extent: Any) -> Any:
        """Nothing but what was given; see `ConfigSpace.axis`."""
        return extent

    reduce_axis = axis

    def add_flop(self, flop: float) -> None:
        """Nothing; see `ConfigSpace.add_flop`."""

    def multi_filter(self, filter: Any) -> None:
        """Nothing; see `ConfigSpace.multi_filter`."""

    def require_knobs_of(self, other: ConfigEntity) -> None:
        """Raise InstantiationError, naming it, at a knob of a wrong kind or impossible factors.

        `other` is of the same template, such as its fallback. Knobs may be missing: templates have
        defaults for those that older versions did not write.
        """
        for name, knob in other.knobs.items():
            own = self.knobs.get(name)
            if own is None:
                continue
            if not isinstance(own, type(knob)):
                raise InstantiationError(f"its knob {name!r} is {own}")
            if isinstance(own, SplitEntity) and not _are_factors(own.size):
                raise InstantiationError(f"its knob {name!r} has the factors {list(own.size)}")

    def raise_error(self, message: str) -> None:
        """Refuse this config, from inside a template.

        Raises
        ------
        InstantiationError
            Always.
        """
        raise InstantiationError(message)

    def dumps(self) -> str:
        """Knobs as one JSON string, for a block annotation."""
        return json.dumps(self.to_entity(), separators=(",", ":"))


def split(*size: int) -> SplitEntity:
    """Shorthand for a split knob."""
    return SplitEntity(tuple(size))


def option(val: Any) -> OtherOptionEntity:
    """Shorthand for an option knob."""
    return OtherOptionEntity(val)


def options(**values: Any) -> ConfigEntity:
    """A config whose knobs are all options, with these values."""
    return ConfigEntity({name: option(value) for name, value in values.items()})
