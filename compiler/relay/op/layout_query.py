"""Inputs and results of layout rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from ...errors import RelayError
from .layout_string import Layout

Maybe = Layout | None


@dataclass(frozen=True)
class Query:
    """Input of a layout rule."""

    attrs: dict[str, Any]  # of the call; rules return modified copies
    old: Sequence[Maybe]  # original layouts of the operands; None if unknown
    new: Sequence[Layout] | None  # current layouts; None in the query about the original call
    types: Sequence[Any]  # original types of the operands

    def shape(self, index: int = 0) -> list[Any]:
        """Extents of an operand."""
        ty = self.types[index]
        if not isinstance(ty, relax.TensorType) or ty.shape is None:
            raise RelayError("the shape of an operand is not known")
        return list(ty.shape.values)

    def axis(self, name: str = "axis", rank: int | None = None) -> int:
        """Attribute that names an axis, normalized to be non-negative."""
        return int(self.attrs[name]) % (len(self.shape()) if rank is None else rank)

    def is_scalar(self, index: int) -> bool:
        return isinstance(self.types[index], relax.TensorType) and self.types[index].ndim == 0


@dataclass(frozen=True)
class Answer:
    """Result of a layout rule: layouts of operands and results, and updated attributes."""

    inputs: list[Maybe]
    outputs: list[Maybe]
    attrs: dict[str, Any] = field(default_factory=dict)


Rule = Callable[[Query], Answer | None]
