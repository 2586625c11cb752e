"""Reading JSON lines that a stranger wrote: whatever is wrong with one is a RecordError."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from ..errors import RecordError

P = ParamSpec("P")
R = TypeVar("R")

# Values of other types and lengths than expected, numbers beyond all ranges, nesting.
_MISREADS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_DEEPEST = 64  # no tuning record comes near; Python's and TVM's stacks are far from ending
_LONGEST_REASON = 200


def as_record_errors(parse: Callable[P, R]) -> Callable[P, R]:
    """Let a parser raise nothing but RecordError, whatever its text makes it stumble over."""

    @functools.wraps(parse)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return parse(*args, **kwargs)
        except RecordError:
            raise
        except _MISREADS as error:
            reason = f"lacks or misspells a field ({error!r}"[:_LONGEST_REASON]
            raise RecordError(f"{reason})") from error

    return checked


def read_json(text: str) -> Any:
    """The value that a line holds.

    Raises RecordError: it is not JSON, has numbers of thousands of digits or halves of characters,
    or is nested more than 64 levels deep.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise RecordError("not a JSON object, or a truncated one") from None
    except RecursionError:
        raise RecordError("nested too deeply") from None
    except ValueError:  # Python's limit
        raise RecordError("has an integer of thousands of digits") from None
    check_depth(value)
    if "\\" in text:
        check_characters(value)
    return value


def check_characters(value: Any) -> None:
    """Reject halves of surrogate pairs, which escapes make and no encoding has, by RecordError."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RecordError("has half of a surrogate pair, which is not a character") from None


def check_depth(value: Any) -> None:
    """Raise RecordError at nesting over 64 levels: recursive readers fail or TVM crashes."""
    level: list[Any] = [[value]]
    for _ in range(_DEEPEST + 1):
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, (list, dict))
        ]
        if not level:
            return
    raise RecordError(f"nested more than {_DEEPEST} levels deep")


def mean_seconds(costs: Sequence[float], error_no: int = 0) -> float:
    """Mean of the measured times; infinity for a failure, which times of 0 or less are, too."""
    if error_no or not costs or not all(0.0 < cost < math.inf for cost in costs):
        return math.inf
    return sum(costs) / len(costs)
