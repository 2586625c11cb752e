"""Queries and answers of layout rules."""

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
    """A query of a layout rule.

    Attributes
    ----------
    attrs : dict
        Attributes of the call; a rule returns changed copies.
    old : list of Layout or None
        Layouts of the operands as they were; None where nothing tells.
    new : list of Layout, optional
        Their layouts now; None when the call is looked at as it was written.
    types : list of types
        Types of the operands as they were.
    """

    attrs: dict[str, Any]
    old: Sequence[Maybe]
    new: Sequence[Layout] | None
    types: Sequence[Any]

    def shape(self, index: int = 0) -> list[Any]:
        """The extents of an operand."""
        ty = self.types[index]
        if not isinstance(ty, relax.TensorType) or ty.shape is None:
            raise RelayError("the shape of an operand is not known")
        return list(ty.shape.values)

    def axis(self, name: str = "axis", rank: int | None = None) -> int:
        """An attribute that names an axis, counted from the front."""
        return int(self.attrs[name]) % (len(self.shape()) if rank is None else rank)

    def is_scalar(self, index: int) -> bool:
        return isinstance(self.types[index], relax.TensorType) and self.types[index].ndim == 0


@dataclass(frozen=True)
class Answer:
    """Layouts of operands and results, and the attributes that go with them."""

    inputs: list[Maybe]
    outputs: list[Maybe]
    attrs: dict[str, Any] = field(default_factory=dict)


Rule = Callable[[Query], Answer | None]
