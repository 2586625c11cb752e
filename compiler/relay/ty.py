"""Types under Relay's names; an extent `Any()` becomes a symbolic dimension of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as AnyValue

import numpy as np
import tvm
from tvm import relax

from ..errors import RelayTypeError

Type = tvm.ir.Type
TupleType = relax.TupleType
FuncType = relax.FuncType


class Any:
    """An extent that is known only at run time; no two of them are taken to be equal."""

    def __repr__(self) -> str:
        return "?"


class _TensorTypeName(type):
    def __instancecheck__(cls, instance: AnyValue) -> bool:
        return isinstance(instance, relax.TensorType)


class TensorType(metaclass=_TensorTypeName):
    """`relay.TensorType(shape, dtype)` makes a `relax.TensorType`."""

    def __new__(cls, shape: Sequence[AnyValue], dtype: str = "float32") -> AnyValue:
        return relax.TensorType([extent(value) for value in shape], dtype)


def scalar_type(dtype: str) -> relax.TensorType:
    """Type of a tensor of rank 0."""
    return relax.TensorType([], dtype)


def fresh(name: str = "n") -> AnyValue:
    """A new symbolic dimension."""
    return tvm.tirx.Var(name, "int64")


def extent(value: AnyValue) -> AnyValue:
    """One extent of a shape as Relax takes it."""
    if isinstance(value, Any) or value is Any:
        return fresh("any")
    if isinstance(value, (int, np.integer)):
        if value < 0:
            raise RelayTypeError(f"an extent of {value} in a shape")
        return int(value)
    if isinstance(value, tvm.tirx.IntImm):
        return int(value)
    if isinstance(value, tvm.ir.Expr) and isinstance(value.ty, tvm.ir.PrimType):
        return value if str(value.ty) == "int64" else value.astype("int64")
    raise RelayTypeError(f"an extent of a shape must be an int or relay.Any(), not {value!r}")
