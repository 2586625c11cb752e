"""Tensors of few elements, each computed by a separate expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx


def element_at(at: Any, values: Sequence[Any], dtype: str = "int64") -> Any:
    """values[at], by selection; 0 beyond the last value."""
    result: Any = tirx.const(0, dtype)
    for place, each in enumerate(values):
        result = tirx.Select(at == place, each, result)
    return result


def by_place(values: Sequence[Any], name: str = "extents", dtype: str = "int64") -> te.Tensor:
    """A tensor of the given scalars."""
    return te.compute((len(values),), lambda at: element_at(at, values, dtype), name=name)
