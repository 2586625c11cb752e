"""`tvm.parser`: Relay text."""

from __future__ import annotations

from ..relay.text import fromtext, parse

__all__ = ["fromtext", "parse", "parse_expr"]


def parse_expr(source: str) -> object:
    """The body of the only function of a text that holds one expression."""
    return parse(source)["main"].body
