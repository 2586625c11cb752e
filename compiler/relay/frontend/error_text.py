"""Rewrite TVM's error messages about operators for users of importers."""

from __future__ import annotations

import re
from collections.abc import Callable

_OMITTED = re.compile(r"# Metadata omitted\.[^.]*to show it\.\s*")
_REPLACED: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(\w*Error: )?Check failed: .* is false: "), ""),
    (re.compile(r"(\w*Error: )?Check failed: .* \(.* vs\. .*\) : "), ""),
    (re.compile(r"metadata\[[^]]*\]\[\d+\]"), "a constant"),
    (re.compile(r"T\.(?:int|uint|float|bool)\d*\(([^()]*)\)"), r"\1"),
    (re.compile(r"R\.Tensor\(\((.*?),?\), dtype=\"(\w+)\"\)"), r"\2[\1]"),
    (re.compile(r"R\.Tensor\(dtype=\"(\w+)\", ndim=(\d+)\)"), r"\1 of \2 axes"),
    (re.compile(r"R\.Tensor\(dtype=\"(\w+)\"\)"), r"\1 of unknown rank"),
    (re.compile(r"R\.shape\(\[([^][]*)\]\)"), r"[\1]"),
    (re.compile(r"\bT\.(u?int\d+|b?float\d+|bool)\b"), r"\1"),
    (re.compile(r"\bT\.(max|min)\("), r"\1("),
    (re.compile(r"\s+"), " "),
)


def plain(text: str) -> str:
    """TVM's text without the notation of its modules and the checks of its sources.

    `float32[2, 3]` is a tensor, `[2, 3]` a shape, an operator has its name alone.
    """
    text = _OMITTED.sub("", _names_of_operators(text))
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text.strip()


def reason_of(error: Exception) -> str:
    """Message of an error without TVM's internals; the class name if it is empty."""
    return plain(str(error)).rstrip(".") or type(error).__name__


def _names_of_operators(text: str) -> str:
    """`text` with each printed operator, which goes on for lines, replaced by its name."""
    start = text.find("ir.Op(")
    while start >= 0:
        end, depth, quoted = start + len("ir.Op("), 1, False
        while end < len(text) and depth:
            quoted ^= text[end] == '"'
            depth += 0 if quoted else {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        name = re.search(r"\bname=\"(?:relax\.)?([\w.]+)\"", text[start:end])
        shown = name[1] if name else "the operator"
        text = text[:start] + shown + text[end:]
        start = text.find("ir.Op(", start + len(shown))
    return text
