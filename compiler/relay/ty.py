"""Types under Relay's names; an extent `Any()` becomes a symbolic dimension of its own."""

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
    """An extent that is known only at run time; no two of them are taken to be equal.

    Where TVM takes an expression, such as in the shape of `te.placeholder`, it is a variable.
    """

    def __init__(self) -> None:
        self._variable: AnyValue = None

    def __repr__(self) -> str:
        return "?"

    def asobject(self) -> AnyValue:
        """A variable, the same each time."""
        if self._variable is None:
            self._variable = tvm.tirx.Var("any", "int32")
        return self._variable


def is_any(value: AnyValue) -> bool:
    """Whether an extent is `Any()`, or computed from one, so that only running tells it."""
    if not isinstance(value, tvm.ir.Expr):
        return isinstance(value, Any)
    unknown = tvm.tirx.analysis.undefined_vars(value)
    return any(str(each.name) in _UNKNOWN for each in unknown)


def is_dynamic(tensor_type: AnyValue) -> bool:
    """Whether an extent of a tensor, or of one in a tuple, is not a number."""
    if isinstance(tensor_type, TupleType):
        return any(map(is_dynamic, tensor_type.fields))
    return any(
        is_any(each) or not isinstance(each, (int, tvm.tirx.IntImm)) for each in tensor_type.shape
    )


# Names of the extents that `fresh` makes for what is not known: of a type, and of a result.
_UNKNOWN = ("any", "known")


class IncompleteType:
    """The type of a variable that says nothing about it; the first operator does."""

    def __init__(self, kind: AnyValue = None) -> None:
        self.kind = kind


class TypeKind:
    """What a type variable stands for; only types are left."""

    Type, ShapeVar, BaseType, Shape, Constraint, AdtHandle, TypeData = range(7)


@py_class("baton.relay.TypeVar", structural_eq="var")
class TypeVar(tvm.ir.Type):
    """A type that a polymorphic function or data type leaves open."""

    name_hint: str = field(structural_eq="ignore")
    kind: int

    def __init__(self, name: str, kind: int = TypeKind.Type) -> None:
        self.__ffi_init__(name_hint=name, kind=int(kind))

    def __hash__(self) -> int:
        return hash(str(self.name_hint))


@py_class("baton.relay.GlobalTypeVar")
class GlobalTypeVar(tvm.ir.Type):
    """The name of a data type; called with types, an instance of it."""

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
    """A data type with what its type variables are: `List[int32]`."""

    func: AnyValue
    args: AnyValue

    def __init__(self, func: tvm.ir.Type, args: Sequence[tvm.ir.Type]) -> None:
        self.__ffi_init__(func=func, args=list(args))


@py_class("baton.relay.RefType")
class RefType(tvm.ir.Type):
    """The type of a reference to a value."""

    value: AnyValue

    def __init__(self, value: tvm.ir.Type) -> None:
        self.__ffi_init__(value=value)


@py_class("baton.relay.PolymorphicType")
class PolymorphicType(tvm.ir.Type):
    """The type of a function with type variables."""

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
    """Whether a type is, or is made of, what only the types here can say."""
    if isinstance(ty, relax.TupleType):
        return any(map(mentions_data, ty.fields))
    if isinstance(ty, relax.FuncType) and ty.params is not None:
        return any(map(mentions_data, [*ty.params, ty.ret]))
    return isinstance(ty, (TypeVar, GlobalTypeVar, TypeCall, RefType, PolymorphicType))


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
