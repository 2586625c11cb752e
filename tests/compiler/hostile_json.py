"""Variants of a JSON text in which each value in turn is something that no reader expects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

HOSTILE = (
    "1e999",
    "-1e999",
    "NaN",
    "1" + "0" * 400,
    "9" * 5000,
    "[" * 300 + "]" * 300,
    "[" * 100_000,
    '{"a":' * 300 + "1" + "}" * 300,
    "null",
    "true",
    '"\\ud800"',
    "[]",
    "{}",
    "-1",
)
_MARK = "HERE IT IS"


def variants(text: str) -> Iterator[str]:
    """The text with each of its values replaced by each of `HOSTILE`, in both spellings."""
    compact = json.dumps(json.loads(text), separators=(",", ":")) == text
    separators = (",", ":") if compact else (", ", ": ")
    for marked in _marked(json.loads(text)):
        row = json.dumps(marked, separators=separators)
        for value in HOSTILE:
            yield row.replace(f'"{_MARK}"', value)


def _marked(value: Any) -> Iterator[Any]:
    yield _MARK
    if isinstance(value, dict):
        for key in value:
            for each in _marked(value[key]):
                yield {**value, key: each}
    if isinstance(value, list):
        for place in range(len(value)):
            for each in _marked(value[place]):
                yield [*value[:place], each, *value[place + 1 :]]
