"""The options of `optimize_for` that are a backend's own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from compiler.errors import BlockArgumentError

from ..array.program import Flags

_FLAGS = [*(each.name for each in fields(Flags)), "clear"]
_OLD_SPELLING = "backend_opts"


def backend_arguments(backend: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The backend's options.

    * `given`: keywords that are not flags; under "backend_opts" MXNet 1.x took a dict of options.
    Raises BlockArgumentError: there are options, but no backend; one looks like a flag's name; or
    one is given twice.
    """
    options = dict(given)
    old = options.pop(_OLD_SPELLING, {})
    if not isinstance(old, Mapping) or not all(isinstance(name, str) for name in old):
        raise BlockArgumentError(f"{_OLD_SPELLING} must be a dict of options, not {old!r:.60}")
    twice = sorted(set(old) & set(options))
    if twice:
        raise BlockArgumentError(f"the option {twice[0]!r} is in {_OLD_SPELLING} too")
    options |= old
    if options and backend is None:
        raise BlockArgumentError(
            f"{sorted(options)} are options of a backend, but no backend is given"
        )
    for name in options:
        like = difflib.get_close_matches(name, _FLAGS, n=1, cutoff=0.85)
        if like:
            raise BlockArgumentError(
                f"optimize_for has no flag {name!r}; did you mean {like[0]!r}?"
            )
    return options
