"""`relay.transform.AnnotateSpans`: where in the module's text each expression stands."""

from __future__ import annotations

from typing import Any

from .base import module_pass


def AnnotateSpans() -> Any:
    """The module as it is: errors show expressions themselves, and need no positions for it.

    Expressions keep the spans that they were made with.
    """
    return module_pass("AnnotateSpans", 0, lambda mod: mod)
