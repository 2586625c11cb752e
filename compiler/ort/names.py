"""Names of onnxruntime's API: their states, and errors for the names that Baton rejects."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from compiler.errors import RejectedNameError
from compiler.support.text_tables import read_table

logger = logging.getLogger("baton.ort")


@functools.cache
def _table() -> list[list[str]]:
    return read_table(__file__, "onnxruntime_names.txt")


def state_of(name: str) -> tuple[str, str]:
    """State and note of a name such as "OrtValue.numpy"; "missing" for unknown names.

    The states are "works", "ignored" (accepted without effect), "rejected" and "missing".
    """
    for state, patterns, note in _table():
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return state, note
    return "missing", ""


def without_effect(name: str) -> Callable[..., None]:
    """A function that accepts any arguments and logs that it has no effect."""

    def ignored(*_: Any, **__: Any) -> None:
        logger.info("%s has no effect in Baton: %s", name, state_of(name)[1])

    ignored.__name__ = name.rpartition(".")[2]
    return ignored


def missing_name(name: str) -> AttributeError:
    """The error for a name that Baton does not have, such as "OrtValue.as_sparse_tensor"."""
    state, note = state_of(name)
    if state == "rejected":
        return RejectedNameError(f"{name} is unsupported in Baton. {note}")
    return AttributeError(f"Baton has no {name}")


class KnownNames:
    """Base of onnxruntime's classes: the error for a rejected name says what to use instead."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise missing_name(f"{type(self).__name__}.{name}")
