"""Transform steps of Ansor's records: the fourteen kinds, read from JSON and checked.

A step is a list whose first element is its kind. Ids of stages and iterators are positions at the
moment the step is applied; `state.py` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ...errors import RecordError

PARALLEL, VECTORIZE, UNROLL, TENSORIZE = "parallel", "vectorize", "unroll", "tensorize"
VTHREAD = "vthread"
# Position is the number in the record.
ANNOTATIONS = (
    "none", UNROLL, VECTORIZE, PARALLEL, VTHREAD, "blockIdx.x", "threadIdx.x", "blockIdx.y",
    "threadIdx.y", "blockIdx.z", "threadIdx.z", TENSORIZE,
)  # fmt: skip
UNROLL_PRAGMA = "auto_unroll_max_step"

# No loop nest of a tensor program comes near these; a damaged record must not exhaust memory.
_LARGEST_ID = 10_000
_LARGEST_EXTENT = 2**40


@dataclass(frozen=True)
class Step:
    """One transform step of a stage; its fields stand in the order of the record."""

    stage: int


@dataclass(frozen=True)
class Annotate(Step):
    """AN: annotate or bind one iterator."""

    iterator: int
    annotation: str


@dataclass(frozen=True)
class Fuse(Step):
    """FU: fuse consecutive iterators; of none, a new loop of extent 1 comes first."""

    iterators: tuple[int, ...]


@dataclass(frozen=True)
class Pragma(Step):
    """PR: `auto_unroll_max_step$N` on an iterator."""

    iterator: int
    max_step: int


@dataclass(frozen=True)
class Reorder(Step):
    """RE: new order of all iterators."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Split(Step):
    """SP: split into one part more than there are lengths."""

    iterator: int
    extent: int
    lengths: tuple[int, ...]
    inner_to_outer: bool


@dataclass(frozen=True)
class FollowSplit(Step):
    """FSP: split by the lengths of an earlier SP, the last of them multiplied."""

    iterator: int
    source: int
    parts: int


@dataclass(frozen=True)
class FollowFusedSplit(Step):
    """FFSP: split by the product of one length of several earlier SPs."""

    iterator: int
    sources: tuple[int, ...]
    level: int
    is_factor: bool


@dataclass(frozen=True)
class StorageAlign(Step):
    """SA: align the stride of an axis."""

    iterator: int
    factor: int
    offset: int


@dataclass(frozen=True)
class ComputeAt(Step):
    """CA: compute a stage inside an iterator of another."""

    target: int
    iterator: int


@dataclass(frozen=True)
class ComputeInline(Step):
    """CI."""


@dataclass(frozen=True)
class ComputeRoot(Step):
    """CR: undo CA or CI."""


@dataclass(frozen=True)
class CacheRead(Step):
    """CHR: a copy of a stage's result for some readers."""

    scope: str
    readers: tuple[int, ...]


@dataclass(frozen=True)
class CacheWrite(Step):
    """CHW: compute into a copy first."""

    scope: str


@dataclass(frozen=True)
class RFactor(Step):
    """RF: factor a reduction iterator out as an axis of partial results."""

    iterator: int
    position: int


SCOPES = ("global", "shared", "warp", "local")


def parse_steps(rows: Any) -> tuple[Step, ...]:
    """Read a record's steps; RecordError names the position of an unknown kind or a wrong field."""
    if not isinstance(rows, list):
        raise RecordError("the steps are not a list")
    steps = []
    for index, row in enumerate(rows):
        try:
            steps.append(_parse(row))
        except (TypeError, ValueError, IndexError) as error:
            raise RecordError(f"step {index} {str(row)[:60]}: {error}") from error
    return tuple(steps)


def to_row(step: Step) -> list[Any]:
    """A step as JSON has it, which `parse_steps` reads."""
    row: list[Any] = [kind_of(step)]
    for name, value in vars(step).items():
        if name == "annotation":
            row.append(ANNOTATIONS.index(value))
        elif name == "max_step":
            row.append(f"{UNROLL_PRAGMA}${value}")
        elif isinstance(value, tuple):
            row.append(list(value))
        else:
            row.append(int(value) if isinstance(value, bool) else value)
    return row


def kind_of(step: Step) -> str:
    """The code of a step's kind: "SP", "CA", ..."""
    return _CODES[type(step)]


def _parse(row: Any) -> Step:
    if not isinstance(row, list) or not row:
        raise ValueError("not a list of a kind and its fields")
    kind, *values = row
    step = _KINDS.get(kind) if isinstance(kind, str) else None
    if step is None:
        raise ValueError(f"unknown kind {str(kind)[:20]!r}")
    names = [field.name for field in fields(step)]
    if len(values) != len(names):
        raise ValueError(f"{kind} has {len(names)} fields, not {len(values)}")
    return step(*(_READERS[name](value) for name, value in zip(names, values)))


def _id(value: Any) -> int:
    number = _int(value)
    if not 0 <= number <= _LARGEST_ID:
        raise ValueError(f"id {number} is out of range")
    return number


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{str(value)[:20]!r} is not a whole number")
    if abs(value) > _LARGEST_EXTENT:
        raise ValueError("a number is out of range")
    return value


def _length(value: Any) -> int:
    number = _int(value)
    if number < 1:
        raise ValueError(f"{number} is not a length")
    return number


def _ids(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > _LARGEST_ID:
        raise TypeError("not a list of ids")
    return tuple(map(_id, values))


def _flag(value: Any) -> bool:
    if _int(value) not in (0, 1):
        raise ValueError(f"{value} is not a flag")
    return bool(value)


def _scope(value: Any) -> str:
    if value not in SCOPES:
        raise ValueError(f"{str(value)[:20]!r} is not a storage scope")
    return str(value)


def _annotation(value: Any) -> str:
    number = _int(value)
    if not 0 <= number < len(ANNOTATIONS):
        raise ValueError(f"unknown annotation {number}")
    return ANNOTATIONS[number]


def _max_step(text: Any) -> int:
    name, _, number = str(text).partition("$")
    if name != UNROLL_PRAGMA or not number.isdecimal() or len(number) > 9:
        raise ValueError(f"pragma {str(text)[:40]!r} is not known")
    return int(number)


def _lengths(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not values or len(values) > 16:
        raise TypeError("lengths are not a list")
    return tuple(map(_length, values))


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("stage", "iterator", "target", "source", "position", "level"), _id),
    **dict.fromkeys(("iterators", "order", "sources", "readers"), _ids),
    **dict.fromkeys(("inner_to_outer", "is_factor"), _flag),
    **dict.fromkeys(("parts", "factor"), _length),
    "extent": lambda value: 0 if value is None else _int(value),
    "offset": _int,
    "lengths": _lengths,
    "annotation": _annotation,
    "max_step": _max_step,
    "scope": _scope,
}
_KINDS: dict[str, type[Step]] = {
    "AN": Annotate, "FU": Fuse, "PR": Pragma, "RE": Reorder, "SP": Split, "FSP": FollowSplit,
    "FFSP": FollowFusedSplit, "SA": StorageAlign, "CA": ComputeAt, "CI": ComputeInline,
    "CR": ComputeRoot, "CHR": CacheRead, "CHW": CacheWrite, "RF": RFactor,
}  # fmt: skip
_CODES = {step: kind for kind, step in _KINDS.items()}
