"""Transform steps of Ansor's records: the fourteen kinds, read from JSON and checked.

A step is a list whose first element is its kind. Ids of stages and iterators are positions at the
moment the step is applied; `state.py` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
class Annotate:
    """AN: annotate or bind one iterator."""

    stage: int
    iterator: int
    annotation: str


@dataclass(frozen=True)
class Fuse:
    """FU: fuse consecutive iterators; of none, a new loop of extent 1 comes first."""

    stage: int
    iterators: tuple[int, ...]


@dataclass(frozen=True)
class Pragma:
    """PR: `auto_unroll_max_step$N` on an iterator."""

    stage: int
    iterator: int
    max_step: int


@dataclass(frozen=True)
class Reorder:
    """RE: new order of all iterators."""

    stage: int
    order: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """SP: split into one part more than there are lengths."""

    stage: int
    iterator: int
    extent: int
    lengths: tuple[int, ...]
    inner_to_outer: bool


@dataclass(frozen=True)
class FollowSplit:
    """FSP: split by the lengths of an earlier SP, the last of them multiplied."""

    stage: int
    iterator: int
    source: int
    parts: int


@dataclass(frozen=True)
class FollowFusedSplit:
    """FFSP: split by the product of one length of several earlier SPs."""

    stage: int
    iterator: int
    sources: tuple[int, ...]
    level: int
    is_factor: bool


@dataclass(frozen=True)
class StorageAlign:
    """SA: align the stride of an axis."""

    stage: int
    iterator: int
    factor: int
    offset: int


@dataclass(frozen=True)
class ComputeAt:
    """CA: compute a stage inside an iterator of another."""

    stage: int
    target: int
    iterator: int


@dataclass(frozen=True)
class ComputeInline:
    """CI."""

    stage: int


@dataclass(frozen=True)
class ComputeRoot:
    """CR: undo CA or CI."""

    stage: int


@dataclass(frozen=True)
class CacheRead:
    """CHR: a copy of a stage's result for some readers."""

    stage: int
    scope: str
    readers: tuple[int, ...]


@dataclass(frozen=True)
class CacheWrite:
    """CHW: compute into a copy first."""

    stage: int
    scope: str


@dataclass(frozen=True)
class RFactor:
    """RF: factor a reduction iterator out as an axis of partial results."""

    stage: int
    iterator: int
    position: int


Step = (
    Annotate | Fuse | Pragma | Reorder | Split | FollowSplit | FollowFusedSplit | StorageAlign
    | ComputeAt | ComputeInline | ComputeRoot | CacheRead | CacheWrite | RFactor
)  # fmt: skip

SCOPES = ("global", "shared", "warp", "local")


def parse_steps(rows: Any) -> tuple[Step, ...]:
    """Read the list of steps of a record.

    Raises RecordError: a step of an unknown kind, or with fields that it does not have; names its
    position.
    """
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
    kind, *fields = row
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise ValueError(f"unknown kind {str(kind)[:20]!r}")
    count, make = read
    if len(fields) != count:
        raise ValueError(f"{kind} has {count} fields, not {len(fields)}")
    return make(*fields)


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


def _annotate(stage: Any, iterator: Any, annotation: Any) -> Annotate:
    number = _int(annotation)
    if not 0 <= number < len(ANNOTATIONS):
        raise ValueError(f"unknown annotation {number}")
    return Annotate(_id(stage), _id(iterator), ANNOTATIONS[number])


def _pragma(stage: Any, iterator: Any, text: Any) -> Pragma:
    name, _, number = str(text).partition("$")
    if name != UNROLL_PRAGMA or not number.isdecimal() or len(number) > 9:
        raise ValueError(f"pragma {str(text)[:40]!r} is not known")
    return Pragma(_id(stage), _id(iterator), int(number))


def _split(stage: Any, iterator: Any, extent: Any, lengths: Any, inner_to_outer: Any) -> Split:
    if not isinstance(lengths, list) or not lengths or len(lengths) > 16:
        raise TypeError("lengths are not a list")
    return Split(
        _id(stage), _id(iterator), 0 if extent is None else _int(extent),
        tuple(map(_length, lengths)), _flag(inner_to_outer),
    )  # fmt: skip


_READERS: dict[str, tuple[int, Callable[..., Step]]] = {
    "AN": (3, _annotate),
    "FU": (2, lambda stage, ids: Fuse(_id(stage), _ids(ids))),
    "PR": (3, _pragma),
    "RE": (2, lambda stage, ids: Reorder(_id(stage), _ids(ids))),
    "SP": (5, _split),
    "FSP": (4, lambda stage, it, src, n: FollowSplit(_id(stage), _id(it), _id(src), _length(n))),
    "FFSP": (
        5,
        lambda stage, it, src, level, factor: FollowFusedSplit(
            _id(stage), _id(it), _ids(src), _id(level), _flag(factor)
        ),
    ),
    "SA": (
        4,
        lambda stage, it, factor, offset: StorageAlign(
            _id(stage), _id(it), _length(factor), _int(offset)
        ),
    ),
    "CA": (3, lambda stage, target, it: ComputeAt(_id(stage), _id(target), _id(it))),
    "CI": (1, lambda stage: ComputeInline(_id(stage))),
    "CR": (1, lambda stage: ComputeRoot(_id(stage))),
    "CHR": (3, lambda stage, scope, ids: CacheRead(_id(stage), _scope(scope), _ids(ids))),
    "CHW": (2, lambda stage, scope: CacheWrite(_id(stage), _scope(scope))),
    "RF": (3, lambda stage, it, at: RFactor(_id(stage), _id(it), _id(at))),
}
_CODES: dict[type, str] = {
    Annotate: "AN", Fuse: "FU", Pragma: "PR", Reorder: "RE", Split: "SP", FollowSplit: "FSP",
    FollowFusedSplit: "FFSP", StorageAlign: "SA", ComputeAt: "CA", ComputeInline: "CI",
    ComputeRoot: "CR", CacheRead: "CHR", CacheWrite: "CHW", RFactor: "RF",
}  # fmt: skip
