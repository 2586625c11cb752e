"""Types of a Relay program: conversion to Relax, and inference of type variables in calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, tirx

from ...errors import RelayError
from ..adt import tag_of
from ..ty import fresh
from . import syntax
from .values import Closure, Data, Handle

RESULT_FORM = "relay.result"
"""Function attribute that describes the data in its result, as JSON."""


_LARGEST = 2**63 - 1


def relax_type(kind: syntax.Type | None, named: bool = True) -> Any:
    """Relax type or None; `?` is a new symbol if `named`, else the whole shape is unknown."""
    if isinstance(kind, syntax.TensorType):
        if None in kind.shape and not named:
            return relax.TensorType(dtype=kind.dtype, ndim=len(kind.shape))
        if any(dim is not None and dim > _LARGEST for dim in kind.shape):
            raise RelayError(f"a tensor type has an extent above 2**63 - 1: {kind.shape}")
        dims = [fresh("any") if dim is None else dim for dim in kind.shape]
        return relax.TensorType(dims, kind.dtype)
    if isinstance(kind, syntax.TupleType):
        fields = [relax_type(field, named) for field in kind.fields]
        return None if any(field is None for field in fields) else relax.TupleType(fields)
    return None


class DataTypes:
    """The algebraic data types of a module."""

    def __init__(self, module: syntax.Module) -> None:
        self._source = module.source
        self._types = module.types
        self._functions = module.functions
        self._homes = {name: each for each in module.types.values() for name in each.constructors}

    def in_relax(self, kind: syntax.Type, named: bool = False) -> Any:
        """Run-time type; data types become AnyType."""
        if isinstance(kind, syntax.NamedType):
            return relax.AnyType()
        if isinstance(kind, syntax.TupleType):
            return relax.TupleType([self.in_relax(field, named) for field in kind.fields])
        return relax_type(kind, named)

    def is_complete(self, kind: syntax.Type | None) -> bool:
        """Whether values of a type can be passed to and from run-time functions."""
        if isinstance(kind, syntax.TupleType):
            return all(map(self.is_complete, kind.fields))
        return isinstance(kind, syntax.TensorType) or (
            isinstance(kind, syntax.NamedType) and kind.name in self._types
        )

    def constructors(self, kind: syntax.NamedType) -> Mapping[str, tuple[syntax.Type, ...]]:
        """Constructors of a data type with their declared field types."""
        return self._types[kind.name].constructors

    def constructor(self, name: str, kind: syntax.NamedType) -> tuple[int, list[syntax.Type]]:
        """Tag and instantiated field types of a constructor; RelayError if the type lacks it."""
        home = self._types[kind.name]
        if name not in home.constructors:
            raise RelayError(f"{self._source}: {name} is not a constructor of {kind.name}")
        variables = dict(zip(home.type_params, kind.arguments))
        fields = [substituted(field, variables) for field in home.constructors[name]]
        return tag_of(home.name, list(home.constructors).index(name)), fields

    def of(self, value: Any) -> syntax.Type:
        """Infer the type of a value; unknown if it cannot be inferred."""
        if isinstance(value, Handle):
            return value.type
        if isinstance(value, list):
            return syntax.TupleType(tuple(map(self.of, value)))
        if isinstance(value, relax.Expr):
            return _of_tensors(value.ty)
        if isinstance(value, Closure):
            return _declared(value.function)
        if isinstance(value, syntax.Global) and value.name in self._functions:
            return _declared(self._functions[value.name])
        if not isinstance(value, Data):
            return syntax.UnknownType()
        home = self._homes[value.constructor]
        variables: dict[str, syntax.Type] = {}
        for wanted, field in zip(home.constructors[value.constructor], value.fields):
            _solve(wanted, self.of(field), home.type_params, variables)
        return substituted(syntax.NamedType(home.name, _parameters(home)), variables, home)

    def form_of(self, value: Any) -> Any:
        """Describe data types in a result: a list for a tuple, None if it holds tensors alone."""
        if isinstance(value, list):
            fields = list(map(self.form_of, value))
            return fields if any(each is not None for each in fields) else None
        if not isinstance(value, Data):
            return None
        home = self._homes[value.constructor]
        tag = tag_of(home.name, list(home.constructors).index(value.constructor))
        return {"data": [value.constructor, tag, list(map(self.form_of, value.fields))]}

    def of_call(self, function: syntax.Function, arguments: list[Any]) -> dict[str, syntax.Type]:
        """Infer the type variables of a function in a call."""
        variables: dict[str, syntax.Type] = dict.fromkeys(
            function.type_params, syntax.UnknownType()
        )
        for var, value in zip(function.parameters, arguments):
            _solve(var.type, self.of(value), function.type_params, variables)
        return variables

    def declared(
        self, kind: syntax.Type | None, value: Any, variables: Mapping[str, syntax.Type]
    ) -> syntax.Type:
        """Declared type of a parameter; the argument's type if the declaration is incomplete."""
        wanted = substituted(kind, variables)
        return wanted if self.is_complete(wanted) else joined(wanted, self.of(value)) or wanted


def substituted(
    kind: syntax.Type | None,
    variables: Mapping[str, syntax.Type],
    home: syntax.DataType | None = None,
) -> syntax.Type:
    """Replace type variables in a type; unbound ones of the data type `home` become unknown."""
    if isinstance(kind, syntax.TupleType):
        return syntax.TupleType(tuple(substituted(each, variables, home) for each in kind.fields))
    if isinstance(kind, syntax.NamedType):
        if not kind.arguments and kind.name in variables:
            return variables[kind.name]
        if home is not None and kind.name in home.type_params:
            return syntax.UnknownType()
        arguments = tuple(substituted(each, variables, home) for each in kind.arguments)
        return syntax.NamedType(kind.name, arguments)
    return syntax.UnknownType() if kind is None else kind


def joined(one: syntax.Type, other: syntax.Type) -> syntax.Type | None:
    """Least upper bound of two types; None if there is none."""
    if isinstance(one, syntax.UnknownType):
        return other
    if isinstance(other, syntax.UnknownType):
        return one
    if isinstance(one, syntax.TensorType) and isinstance(other, syntax.TensorType):
        if one.dtype != other.dtype or len(one.shape) != len(other.shape):
            return None
        shape = tuple(a if a == b else None for a, b in zip(one.shape, other.shape))
        return syntax.TensorType(shape, one.dtype)
    if isinstance(one, syntax.TupleType) and isinstance(other, syntax.TupleType):
        fields = _all_joined(one.fields, other.fields)
        return None if fields is None else syntax.TupleType(fields)
    if isinstance(one, syntax.NamedType) and isinstance(other, syntax.NamedType):
        arguments = _all_joined(one.arguments, other.arguments) if one.name == other.name else None
        return None if arguments is None else syntax.NamedType(one.name, arguments)
    return None


def _all_joined(
    ones: tuple[syntax.Type, ...], others: tuple[syntax.Type, ...]
) -> tuple[syntax.Type, ...] | None:
    found = [joined(*pair) for pair in zip(ones, others)]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(ones) == len(others) else None


def _solve(
    wanted: syntax.Type | None,
    given: syntax.Type,
    names: tuple[str, ...],
    variables: dict[str, syntax.Type],
) -> None:
    """Unify `wanted` with `given` and record the type variables that this determines."""
    if isinstance(wanted, syntax.NamedType) and not wanted.arguments and wanted.name in names:
        known = variables.get(wanted.name, syntax.UnknownType())
        variables[wanted.name] = joined(known, given) or known
    elif isinstance(wanted, syntax.TupleType) and isinstance(given, syntax.TupleType):
        for pair in zip(wanted.fields, given.fields):
            _solve(*pair, names, variables)
    elif isinstance(wanted, syntax.FuncType) and isinstance(given, syntax.FuncType):
        for pair in zip((*wanted.arguments, wanted.result), (*given.arguments, given.result)):
            _solve(*pair, names, variables)
    elif isinstance(wanted, syntax.NamedType) and isinstance(given, syntax.NamedType):
        for pair in zip(wanted.arguments, given.arguments):
            _solve(*pair, names, variables)


def _parameters(home: syntax.DataType) -> tuple[syntax.Type, ...]:
    return tuple(syntax.NamedType(name) for name in home.type_params)


def _declared(function: syntax.Function) -> syntax.FuncType:
    """Declared signature of a function; its own type variables become unknown."""
    unknown: dict[str, syntax.Type] = dict.fromkeys(function.type_params, syntax.UnknownType())
    arguments = tuple(substituted(var.type, unknown) for var in function.parameters)
    return syntax.FuncType(arguments, substituted(function.result, unknown))


def _of_tensors(ty: Any) -> syntax.Type:
    if isinstance(ty, relax.TupleType):
        return syntax.TupleType(tuple(map(_of_tensors, ty.fields)))
    if not isinstance(ty, relax.TensorType) or ty.ndim < 0:
        return syntax.UnknownType()
    extents = [None] * ty.ndim if ty.shape is None else ty.shape.values
    shape = [int(each) if isinstance(each, tirx.IntImm) else None for each in extents]
    return syntax.TensorType(tuple(shape), str(ty.dtype))
