"""`relay.analysis.unmatched_cases`: patterns that a `match` does not cover."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import tvm

from ..errors import RelayError
from .adt import Match, PatternConstructor, PatternTuple, PatternWildcard, get_type


class _Fit(Enum):
    """How a clause pattern covers the data described by a case pattern."""

    ALL = auto()
    NONE = auto()
    SOME = auto()


def unmatched_cases(match: Match, mod: tvm.IRModule | None = None) -> list[Any]:
    """Patterns that no clause covers; a clause that names a constructor requires `mod`."""
    patterns = [clause.lhs for clause in match.clauses]
    cases: list[Any] = [PatternWildcard()]
    unmatched = []
    while cases:
        case = cases.pop()
        for pattern in patterns:
            fit = _fit(pattern, case)
            if fit is _Fit.SOME:
                cases.extend(reversed(_split(case, pattern, mod)))
            if fit is not _Fit.NONE:
                break
        else:
            unmatched.append(case)
    return unmatched


def _fit(pattern: Any, case: Any) -> _Fit:
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return _Fit.ALL
    if isinstance(case, PatternWildcard):
        return _Fit.SOME
    if isinstance(pattern, PatternConstructor) and not _same(pattern, case):
        return _Fit.NONE
    fits = [_fit(*pair) for pair in zip(pattern.patterns, case.patterns)]
    if _Fit.NONE in fits:
        return _Fit.NONE
    return _Fit.SOME if _Fit.SOME in fits else _Fit.ALL


def _same(one: PatternConstructor, other: PatternConstructor) -> bool:
    return str(one.constructor.name_hint) == str(other.constructor.name_hint)


def _split(case: Any, pattern: Any, mod: tvm.IRModule | None) -> list[Any]:
    """Split a case into the sub-cases that a pattern distinguishes."""
    if isinstance(case, PatternWildcard):
        if isinstance(pattern, PatternTuple):
            return [PatternTuple([PatternWildcard() for _ in pattern.patterns])]
        if mod is None:
            raise RelayError(
                f"unmatched_cases needs the module, which says what constructors there are beside "
                f"{pattern.constructor.name_hint}"
            )
        _, *constructors = get_type(mod, pattern.constructor.belong_to)
        return [
            PatternConstructor(each, [PatternWildcard() for _ in each.inputs])
            for each in constructors
        ]
    inner = list(case.patterns)
    for place, (own, wanted) in enumerate(zip(inner, pattern.patterns)):
        if _fit(wanted, own) is _Fit.SOME:
            parts = _split(own, wanted, mod)
            return [_with(case, [*inner[:place], part, *inner[place + 1 :]]) for part in parts]
    return [case]


def _with(case: Any, patterns: list[Any]) -> Any:
    if isinstance(case, PatternTuple):
        return PatternTuple(patterns)
    return PatternConstructor(case.constructor, patterns)
