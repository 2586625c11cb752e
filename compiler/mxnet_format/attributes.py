"""Values of MXNet's operator attributes, which files spell as text in several ways."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.runtime.mxnet_requests import DTYPES as DTYPES

_TRUE = frozenset(["true", "1", "t", "y", "yes"])
_FALSE = frozenset(["false", "0", "f", "n", "no"])

STORAGE_TYPES = ("default", "row_sparse", "csr")
"""Storage types by their code in files."""


def parse_bool(text: str) -> bool:
    """`True`, `true`, `1`, ... ; raises ValueError for anything that is neither true nor false."""
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"{text!r} is not a boolean")


def parse_float(text: str) -> float:
    """A number; raises ValueError for anything else."""
    return float(text.strip())


def parse_int(text: str) -> int:
    """An integer, also when spelled as a float ("2.0"); raises ValueError for anything else."""
    word = text.strip()
    try:
        return int(word)
    except ValueError:
        value = float(word)
    if not math.isfinite(value) or value != int(value):
        raise ValueError(f"{text!r} is not an integer")
    return int(value)


def is_none(text: str) -> bool:
    """Whether an optional value is absent."""
    return text.strip() in ("None", "")


def parse_items(text: str) -> list[str]:
    """The items of a tuple as text: "(1, None)", "[1]", "(1,)", and "2" for a single one."""
    word = text.strip()
    if word[:1] in ("(", "["):
        if word[-1:] != {"(": ")", "[": "]"}[word[0]]:
            raise ValueError(f"{text!r} is not a tuple")
        word = word[1:-1].strip()
    if not word:
        return []
    items = [item.strip() for item in word.removesuffix(",").split(",")]
    if not all(items):
        raise ValueError(f"{text!r} is not a tuple")
    return items


def parse_int_tuple(text: str) -> tuple[int, ...]:
    """A tuple of integers; "None" is the empty tuple."""
    if is_none(text):
        return ()
    return tuple(parse_int(item) for item in parse_items(text))


def parse_optional_int_tuple(text: str) -> tuple[int | None, ...]:
    """A tuple of integers and None."""
    return tuple(None if is_none(item) else parse_int(item) for item in parse_items(text))


def parse_dtype(text: str) -> str:
    """A dtype by name or by its code in decimal; raises ValueError for an unknown one."""
    word = text.strip()
    if word in DTYPES:
        return word
    if word.isdecimal() and int(word) < len(DTYPES):
        return DTYPES[int(word)]
    raise ValueError(f"{text!r} is not a dtype")


def spell(value: Any) -> str:
    """An operator parameter as text, as symbol files have it."""
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(spell(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, (np.integer, int)):
        return str(int(value))
    if isinstance(value, (np.floating, float)):
        return repr(float(value))
    if isinstance(value, type) and issubclass(value, np.generic):
        return str(np.dtype(value))
    return str(value)
