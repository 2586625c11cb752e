"""Types under Relay's names; each extent `Any()` becomes a new symbolic dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as AnyValue

import numpy as np
import tvm
from tvm import relax
from tvm.runtime import ObjectConvertible
from tvm_ffi.dataclasses import field, py_class

from ..errors import RelayTypeError
from ..ir import dynamic_shape

Type = tvm.ir.Type
TupleType = relax.TupleType


class Any(ObjectConvertible):
    """Dynamic extent; two of them are never assumed to be equal.

    Converts to a variable where TVM requires an expression, as in the shape of `te.placeholder`.
    """

    def __init__(self) -> None:
        self._variable: AnyValue = None

    def __repr__(self) -> str:
        return "?"

    def asobject(self) -> AnyValue:
        """The variable of this extent, the same one at each call."""
        if self._variable is None:
            self._variable = tvm.tirx.Var("any", "int32")
        return self._variable


def is_any(value: AnyValue) -> bool:
    """Whether an extent is `Any()` or computed from one, and thus dynamic without a user's name."""
    if not isinstance(value, tvm.ir.Expr):
        return isinstance(value, Any)
    unknown = tvm.tirx.analysis.undefined_vars(value)
    return any(str(each.name) in _UNKNOWN for each in unknown)


def is_dynamic(tensor_type: AnyValue) -> bool:
    """Whether a type contains a tensor with a symbolic extent."""
    if isinstance(tensor_type, TupleType):
        return any(map(is_dynamic, tensor_type.fields))
    return any(
        is_any(each) or not isinstance(each, (int, tvm.tirx.IntImm)) for each in tensor_type.shape
    )


# Name prefixes of `fresh` dimensions: for unknown extents of a type, and of a result.
_UNKNOWN = ("any", "known")


class IncompleteType:
    """Type of an untyped variable; inferred from the first operator that determines it."""

    def __init__(self, kind: AnyValue = None) -> None:
        self.kind = kind


class TypeKind:
    """Kind of a type variable; only type variables of kind Type are left."""

    Type, ShapeVar, BaseType, Shape, Constraint, AdtHandle, TypeData = range(7)


@py_class("baton.relay.TypeVar", structural_eq="var")
class TypeVar(tvm.ir.Type):
    """Type variable of a polymorphic function or data type."""

    name_hint: str = field(structural_eq="ignore")
    kind: int

    def __init__(self, name: str, kind: int = TypeKind.Type) -> None:
        self.__ffi_init__(name_hint=name, kind=int(kind))

    def __hash__(self) -> int:
        return hash(str(self.name_hint))


@py_class("baton.relay.GlobalTypeVar")
class GlobalTypeVar(tvm.ir.Type):
    """Name of a data type; call it with types to instantiate the data type."""

    name_hint: str
    kind: int

    def __init__(self, name: str, kind: int = TypeKind.AdtHandle) -> None:
        self.__ffi_init__(name_hint=name, kind=int(kind))

    def __call__(self, *args: tvm.ir.Type) -> TypeCall:
        return TypeCall(self, args)

    def __hash__(self) -> int:
        return hash(str(self.name_hint))


@py_class("baton.relay.TypeCall")
class TypeCall(tvm.ir.Type):
    """Instance of a data type: `List[int32]`."""

    func: AnyValue
    args: AnyValue

    def __init__(self, func: tvm.ir.Type, args: Sequence[tvm.ir.Type]) -> None:
        self.__ffi_init__(func=func, args=list(args))


@py_class("baton.relay.RefType")
class RefType(tvm.ir.Type):
    """Type of a reference to a value."""

    value: AnyValue

    def __init__(self, value: tvm.ir.Type) -> None:
        self.__ffi_init__(value=value)


@py_class("baton.relay.PolymorphicType")
class PolymorphicType(tvm.ir.Type):
    """Type of a function with type variables."""

    type_params: AnyValue = field(structural_eq="def")
    arg_types: AnyValue
    ret_type: AnyValue

    def __init__(
        self,
        arg_types: Sequence[tvm.ir.Type],
        ret_type: tvm.ir.Type,
        type_params: Sequence[TypeVar],
    ) -> None:
        self.__ffi_init__(
            type_params=list(type_params), arg_types=list(arg_types), ret_type=ret_type
        )


def mentions_data(ty: AnyValue) -> bool:
    """Whether a type is or contains a type without a Relax equivalent."""
    if isinstance(ty, relax.TupleType):
        return any(map(mentions_data, ty.fields))
    if isinstance(ty, relax.FuncType) and ty.params is not None:
        return any(map(mentions_data, [*ty.params, ty.ret]))
    return isinstance(ty, (TypeVar, GlobalTypeVar, TypeCall, RefType, PolymorphicType))


class _Name(type):
    """Metaclass of Relay's type names: a call creates the Relax type, `isinstance` accepts it."""

    node: AnyValue

    def __instancecheck__(cls, instance: AnyValue) -> bool:
        return isinstance(instance, cls.node)


class FuncType(metaclass=_Name):
    """`relay.FuncType(arg_types, ret_type)` creates a `relax.FuncType`."""

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
            return PolymorphicType(arg_types, ret_type, type_params)
        return relax.FuncType(list(arg_types), ret_type)


class TensorType(metaclass=_Name):
    """`relay.TensorType(shape, dtype)` creates a `relax.TensorType`."""

    node = relax.TensorType

    def __new__(cls, shape: Sequence[AnyValue], dtype: str = "float32") -> AnyValue:
        return relax.TensorType([extent(value) for value in shape], dtype)


def scalar_type(dtype: str) -> relax.TensorType:
    """Type of a tensor of rank 0."""
    return relax.TensorType([], dtype)


def fresh(name: str = "n") -> AnyValue:
    """Create a new symbolic dimension."""
    return tvm.tirx.Var(name, "int64")


def extent(value: AnyValue) -> AnyValue:
    """Convert one extent of a shape to its Relax form."""
    if isinstance(value, Any) or value is Any:
        return fresh("any")
    if value is None:
        return fresh("any")
    if isinstance(value, str) and value:
        return dynamic_shape.named(value)
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
