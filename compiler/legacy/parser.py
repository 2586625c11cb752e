"""`tvm.parser`: Relay text."""

from ..relay.text import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
