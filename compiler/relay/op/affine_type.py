"""Affine types of quantized values: real = (integer - zero_point) * scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ..nested_expressions import handle


@dataclass(frozen=True)
class TensorAffineType:
    """Affine type of a tensor: `scale` and `zero_point`, scalars or vectors along `axis`."""

    scale: relax.Expr
    zero_point: relax.Expr
    dtype: str
    axis: int = -1

    @property
    def numbers(self) -> tuple[relax.Expr, relax.Expr]:
        """Scale and zero point, as operands of quantized operators."""
        return self.scale, self.zero_point


@dataclass(frozen=True)
class TupleAffineType:
    """Affine type of a tuple: one type per field."""

    types: Sequence[TensorAffineType]


AffineType = TensorAffineType | TupleAffineType


class AffineTypes:
    """Maps expressions, by identity, to their affine types."""

    def __init__(self) -> None:
        self._types: dict[int, tuple[relax.Expr, Any]] = {}

    def __setitem__(self, expr: relax.Expr, value: Any) -> None:
        self._types[handle(expr)] = (expr, value)

    def __getitem__(self, expr: relax.Expr) -> Any:
        return self._types[handle(expr)][1]

    def __contains__(self, expr: relax.Expr) -> bool:
        return handle(expr) in self._types

    def __iter__(self) -> Iterator[relax.Expr]:
        return (expr for expr, _ in self._types.values())

    def __len__(self) -> int:
        return len(self._types)

    def get(self, expr: relax.Expr, default: Any = None) -> Any:
        """Return the affine type of an expression, or the default."""
        found = self._types.get(handle(expr))
        return default if found is None else found[1]

    def items(self) -> list[tuple[relax.Expr, Any]]:
        """Expressions and their types, in insertion order."""
        return list(self._types.values())
