"""Flatten and regroup nested values; formats: array 0, None -1, list or tuple a list of formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.errors import BlockArgumentError, BlockTypeError
from compiler.mxnet.symbol.symbol import Symbol
from compiler.mxnet_format.attributes import parse_dtype, parse_int_tuple

from ..array.creation import zeros
from ..array.ndarray import ndarray

Format = Any
ARRAY, NOTHING = 0, -1


def flatten(value: Any, what: str) -> tuple[list[ndarray], Format]:
    """Flatten arrays, None, lists and tuples to arrays and a format; else BlockArgumentError."""
    if isinstance(value, ndarray):
        return [value], ARRAY
    if value is None:
        return [], NOTHING
    if isinstance(value, (list, tuple)):
        arrays: list[ndarray] = []
        formats = []
        for item in value:
            found, format = flatten(item, what)
            arrays += found
            formats.append(format)
        return arrays, formats
    raise BlockArgumentError(
        f"when hybridized, the {what} of a HybridBlock must be (nested) lists of arrays, but got "
        f"{value!r:.80} of type {type(value).__name__}"
    )


def with_arrays(value: Any) -> Any:
    """Replace variables with zeros of their shapes; BlockTypeError if not declared variables."""
    if isinstance(value, (list, tuple)):
        return type(value)(with_arrays(item) for item in value)
    if not isinstance(value, Symbol):
        return value
    node = value.graph.nodes[value.graph.heads[0].node]
    shape = node.attrs.get("__shape__")
    if len(value) != 1 or not node.is_variable or shape is None:
        raise BlockTypeError(
            f"{value!r} is a Symbol whose shape is not known; give an array, or "
            "var(name, shape=..., dtype=...)"
        )
    dtype = parse_dtype(node.attrs.get("__dtype__", "float32"))
    return zeros(parse_int_tuple(shape), dtype)


def regroup(arrays: Iterator[Any], format: Format) -> Any:
    """Nested lists of a format from arrays in order."""
    if format == ARRAY:
        return next(arrays)
    if format == NOTHING:
        return None
    return [regroup(arrays, item) for item in format]


def strip_none(format: Format) -> Format:
    """Remove None at the end, which callers may leave out."""
    kept = list(format)
    while kept and kept[-1] == NOTHING:
        kept.pop()
    return kept


def arrays_in(value: Any) -> Iterator[Any]:
    """Everything in nested lists and tuples that is not one."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays_in(item)
    else:
        yield value
