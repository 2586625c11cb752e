"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_LISTED = 40


def nearest(name: str, known: Collection[str]) -> str:
    """End of an error: the known names that are near, else all of them if they are few."""
    near = difflib.get_close_matches(name, sorted(known), n=3)
    if near:
        return f"; did you mean {', '.join(near)}?"
    if len(known) > _LISTED:
        return ""
    return f"; known are {', '.join(sorted(known))}"
