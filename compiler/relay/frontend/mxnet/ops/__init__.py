"""Converters of MXNet operators, one family per file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.runtime.library_operators import find

from ..node import SymbolNode
from . import (
    activation,
    control_flow,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    normalization,
    numpy,
    pooling,
    recurrent,
    reduction,
    resize,
    shape,
)

CONVERTERS: dict[str, Callable[[SymbolNode], Any]] = {
    name: converter
    for family in (
        *(activation, control_flow, convolution, creation, elementwise, indexing, linear),
        *(normalization, numpy, pooling, recurrent, reduction, resize, shape),
    )
    for name, converter in family.CONVERTERS.items()
}
"""Operator to its converter, which returns one expression, or a list with one per output."""


def is_known(op: str) -> bool:
    """Whether an operator can be converted: by a converter here, or by a library's own code."""
    return op in CONVERTERS or find(op) is not None
