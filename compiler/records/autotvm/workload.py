"""AutoTVM workloads: (task name, argument, ...) tuples, their normal form and their digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any


def normalize(value: Any) -> Any:
    """Spell a workload or an argument with lists, ints, floats, strings and None alone.

    Two workloads that AutoTVM held for equal have the same normal form: tuples and lists are
    the same, `True` is 1, 2.0 is 2, TVM's integers, strings and data types are plain ones, and a
    tensor (anything with `shape` and `dtype`) is ["TENSOR", shape, dtype].
    """
    if value is None or isinstance(value, str):
        return value if value is None else str(value)
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ["TENSOR", normalize(value.shape), str(value.dtype)]
    if isinstance(value, Sequence) or type(value).__name__ == "Array":
        return [normalize(item) for item in value]
    if hasattr(value, "value"):  # tirx.IntImm, FloatImm, StringImm
        return normalize(value.value)
    return str(value)


def to_tuple(value: Any) -> Any:
    """Turn the lists of a normal form into tuples, as AutoTVM's API shows arguments."""
    return tuple(to_tuple(item) for item in value) if isinstance(value, list) else value


def digest(workload: Any) -> bytes:
    """16 bytes that identify a workload; equal for workloads that are equal when normalized."""
    return digest_of_text(json.dumps(normalize(workload), separators=(",", ":")))


def digest_of_json(workload: list) -> bytes:
    """Digest of a workload that `json.loads` returned."""
    text = json.dumps(workload, separators=(",", ":"))
    return digest_of_text(text) if is_normal_text(text) else digest(workload)


def is_normal_text(text: str) -> bool:
    """Whether JSON text has no boolean and no float, which the normal form spells otherwise.

    Nearly all workloads lack the letters that either needs, and this is asked of each line of a
    log: the search of the expression takes ten times as long.
    """
    if "." not in text and "e" not in text and text.count("E") == text.count("TENSOR"):
        return True
    return _NOT_NORMAL.search(text) is None


def digest_of_text(text: str) -> bytes:
    """Digest of a normalized workload as JSON text without spaces."""
    return digests_of_bytes([text.encode()])[0]


def digests_of_bytes(texts: Iterable[bytes]) -> list[bytes]:
    """Digest of encoded normalized texts."""
    return [hashlib.blake2b(text, digest_size=16).digest() for text in texts]


_NOT_NORMAL = re.compile(r"true|false|\d[.eE]")  # a boolean or a float, or a string like them
