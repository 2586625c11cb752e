"""`PassContext(config={"baton.precision": "strict"})`: no algorithm that rounds differently.

TVM's PassContext takes only keys that C++ code has registered; `compiler.PassContext` takes this
one as well, and keeps it as the passes that are disabled by it. Contexts that are made from others,
and the keys of caches, copy those anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import BuildError

KEY = "baton.precision"
DEFAULT, STRICT = "default", "strict"
WINOGRAD, STRASSEN = "Winograd", "Strassen"
FEWER_MULTIPLICATIONS = (WINOGRAD, STRASSEN)
"""Passes that `disabled_pass` knows: algorithms that round differently, which "strict" disables."""


def disabled_by(precision: object) -> tuple[str, ...]:
    """The passes that a precision disables.

    Raises
    ------
    BuildError
        It is neither "default" nor "strict".
    """
    if precision not in (DEFAULT, STRICT):
        raise BuildError(
            f"{KEY} is {precision!r}; it can be {DEFAULT!r}, or {STRICT!r} for a build without "
            f"{' and '.join(FEWER_MULTIPLICATIONS)}"
        )
    return FEWER_MULTIPLICATIONS if precision == STRICT else ()


def of_disabled(passes: Sequence[object]) -> str:
    """The precision of a context that disables these passes."""
    return STRICT if set(FEWER_MULTIPLICATIONS) <= {str(name) for name in passes} else DEFAULT


def todays_arguments(
    disabled_pass: Sequence[str] | None, config: Mapping[str, Any] | None
) -> tuple[Sequence[str] | None, Mapping[str, Any] | None]:
    """`disabled_pass` and `config` for TVM's own PassContext, which knows no precision."""
    if not config or KEY not in config:
        return disabled_pass, config
    others = {key: value for key, value in config.items() if key != KEY}
    return [*(disabled_pass or ()), *disabled_by(config[KEY])], others
