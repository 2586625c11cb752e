"""Types under Relay's names; an extent `Any()` becomes a symbolic dimension of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as AnyValue

import numpy as np
import tvm
from tvm import relax

from ..errors import RelayTypeError
from ..graph import symbols

Type = tvm.ir.Type
TupleType = relax.TupleType


class Any:
    """An extent that is known only at run time; no two of them are taken to be equal."""

    def __repr__(self) -> str:
        return "?"


def is_any(value: AnyValue) -> bool:
    """Whether an extent is `Any()`, or computed from one, so that only running tells it."""
    if not isinstance(value, tvm.ir.Expr):
        return isinstance(value, Any)
    unknown = tvm.tirx.analysis.undefined_vars(value)
    return any(str(each.name) in _UNKNOWN for each in unknown)


# Names of the extents that `fresh` makes for what is not known: of a type, and of a result.
_UNKNOWN = ("any", "known")


class IncompleteType:
    """The type of a variable that says nothing about it; the first operator does."""

    def __init__(self, kind: AnyValue = None) -> None:
        self.kind = kind


class TypeKind:
    """What a type variable stands for; only types are left."""

    Type, ShapeVar, BaseType, Shape, Constraint, AdtHandle, TypeData = range(7)


class _Name(type):
    """Relay's name of a type: calling it makes Relax's, `isinstance` knows Relax's."""

    node: AnyValue

    def __instancecheck__(cls, instance: AnyValue) -> bool:
        return isinstance(instance, cls.node)


class FuncType(metaclass=_Name):
    """`relay.FuncType(arg_types, ret_type)` makes a `relax.FuncType`."""

    node = relax.FuncType

    def __new__(
        cls,
        arg_types: Sequence[AnyValue],
        ret_type: AnyValue,
        type_params: Sequence[AnyValue] | None = None,
        type_constraints: Sequence[AnyValue] | None = None,
    ) -> AnyValue:
        if type_constraints:
            raise RelayTypeError("type_constraints: relations of types have no form in Relax")
        if type_params:
            from .adt import PolymorphicType

            return PolymorphicType(arg_types, ret_type, type_params)
        return relax.FuncType(list(arg_types), ret_type)


class TensorType(metaclass=_Name):
    """`relay.TensorType(shape, dtype)` makes a `relax.TensorType`."""

    node = relax.TensorType

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
    if value is None:
        return fresh("any")
    if isinstance(value, str) and value:
        return symbols.named(value)
    if isinstance(value, (int, np.integer)):
        if value < 0:
            raise RelayTypeError(f"an extent of {value} in a shape")
        return int(value)
    if isinstance(value, tvm.tirx.IntImm):
        return int(value)
    if isinstance(value, tvm.ir.Expr) and isinstance(value.ty, tvm.ir.PrimType):
        return value if str(value.ty) == "int64" else value.astype("int64")
    raise RelayTypeError(
        f"an extent of a shape must be an int, a name or relay.Any(), not {value!r}"
    )
