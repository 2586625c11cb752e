"""Floating-point arithmetic on symbolic extents, such as `int(ceil(float(n) / 2)) * 2`.

Exporters divide and scale extents as floats and cast the result back. Scaled by a number, an
extent is a quotient: an integer expression over a positive number. float32 holds it exactly
enough for extents below 2**24, so rounding it up or down gives the integer that the model computes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tvm import tirx

from compiler.ir.dynamic_shape import is_natural, simplified

from .shape_expr import LARGEST

if TYPE_CHECKING:
    from .node import Node

_FLOATS = ("float32", "float64")
_FINEST = 1 << 10
"""Largest denominator of a factor; a factor such as 0.1 is rounded and gives other integers."""


class Quotient(NamedTuple):
    """An integer expression or number over a positive integer."""

    extent: Any
    divisor: int

    def floor(self) -> Any:
        """The largest integer that is not greater."""
        return simplified(_floordiv(self.extent, self.divisor))

    def ceil(self) -> Any:
        """The smallest integer that is not less."""
        return simplified(_floordiv(self.extent + (self.divisor - 1), self.divisor))

    def scaled(self, factor: Fraction) -> Quotient:
        """The quotient times a positive number."""
        extent = self.extent * factor.numerator if factor.numerator != 1 else self.extent
        return Quotient(extent, self.divisor * factor.denominator)


def _floordiv(extent: Any, divisor: int) -> Any:
    if divisor == 1:
        return extent
    return extent // divisor if isinstance(extent, int) else tirx.floordiv(extent, divisor)


def quotients_of(node: Node) -> np.ndarray | None:
    """Quotients that a node on floats computes from extents; None where it computes others."""
    kind, first = node.proto.op_type, node.get(0)
    known = None if first is None else node.importer.quotients.get(first)
    if kind == "Cast":
        extents = node.extents_in(0) if known is None else None
        if extents is None or extents.dtype.kind not in "iO" or extents.size > LARGEST:
            return known
        return _each(lambda extent: Quotient(extent, 1), extents)
    if kind in ("Ceil", "Floor") and known is not None:
        return _each(lambda each: Quotient(getattr(each, kind.lower())(), 1), known)
    if kind == "Mul" and known is None and node.get(1) is not None:
        known = node.importer.quotients.get(node[1])
        factors = _factors(node, 0)
    elif kind in ("Mul", "Div"):
        factors = _factors(node, 1)
    else:
        return None
    if known is None or factors is None:
        return None
    if kind == "Div":
        factors = _each(lambda factor: 1 / factor, factors)
    return _each(lambda each, factor: each.scaled(factor), known, factors)


def truncated(node: Node) -> np.ndarray | None:
    """The extents that a Cast to int64 makes of quotients that are not negative; else None."""
    known = None if node.get(0) is None else node.importer.quotients.get(node[0])
    if known is None or not all(is_natural(each.extent) for each in known.flat):
        return None
    return _each(Quotient.floor, known)


def _factors(node: Node, index: int) -> np.ndarray | None:
    """A constant input as positive fractions; None if it has other numbers."""
    numbers = node.extents_in(index)
    if numbers is None or numbers.dtype.name not in _FLOATS or numbers.size > LARGEST:
        return None
    if not np.isfinite(numbers).all() or (numbers <= 0).any():
        return None
    factors = _each(lambda number: Fraction(float(number)), numbers)
    return factors if all(each.denominator <= _FINEST for each in factors.flat) else None


def _each(function: Any, *operands: np.ndarray) -> np.ndarray:
    """Broadcast and apply a function to elements, which may be tuples."""
    together = np.broadcast_arrays(*operands)
    made = np.empty(together[0].shape, object)
    for index in np.ndindex(made.shape):
        made[index] = function(*(operand[index] for operand in together))
    return made
