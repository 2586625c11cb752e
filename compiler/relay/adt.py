"""Relay nodes that TVM no longer has: algebraic data types, `match`, references, type variables.

The nodes derive from TVM's node classes, so they can appear in expressions, functions and modules.
They have no run-time representation: `adt_eval.evaluated` evaluates them before compilation.

A module can hold only functions, so its data types are stored in its global infos.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir.expr import ExprWithOp
from tvm_ffi.dataclasses import field, py_class

from ..errors import RelayError, RelayTypeError
from .ty import GlobalTypeVar as GlobalTypeVar
from .ty import PolymorphicType as PolymorphicType
from .ty import RefType as RefType
from .ty import TypeCall as TypeCall
from .ty import TypeVar as TypeVar

_TYPES = "relay.data_types"


@py_class("baton.relay.TypeData")
class TypeData(tvm.ir.GlobalInfo):
    """The definition of a data type: its name, type variables and constructors."""

    header: GlobalTypeVar
    type_vars: Any = field(structural_eq="def")
    constructors: Any

    def __init__(
        self,
        header: GlobalTypeVar,
        type_vars: Sequence[TypeVar],
        constructors: Sequence[Constructor],
    ) -> None:
        for index, each in enumerate(constructors):
            if each.belong_to != header:
                raise RelayTypeError(
                    f"the constructor {each.name_hint} belongs to {each.belong_to.name_hint}, "
                    f"not to {header.name_hint}"
                )
            each.index, each.type_vars = index, list(type_vars)
        self.__ffi_init__(header=header, type_vars=list(type_vars), constructors=list(constructors))


def tag_of(data_type: str, index: int) -> int:
    """Return the tag (int32) that distinguishes a constructor from those of other data types."""
    return (zlib.crc32(data_type.encode()) & 0x7F) << 24 | index


# Expressions.


class _Callable:
    """Base class of nodes that scripts call like functions."""

    def __call__(self, *args: Any) -> Any:
        made = relax.Call(self, list(map(_value, args)))
        ty = type_of_data(self, list(made.args)) if isinstance(self, Constructor) else None
        if ty is not None:
            relax.expr._update_type(made, ty)
        return made


@py_class("baton.relay.Constructor")
class Constructor(_Callable, tvm.ir.Expr):
    """Constructor of a data type: `Constructor(name, field types, name of the data type)`."""

    name_hint: str
    inputs: Any
    belong_to: GlobalTypeVar
    index: int = field(structural_eq="ignore", default=0)
    type_vars: Any = field(structural_eq="ignore")

    def __init__(self, name_hint: str, inputs: Sequence[Any], belong_to: GlobalTypeVar) -> None:
        self.__ffi_init__(
            name_hint=name_hint, inputs=list(inputs), belong_to=belong_to, type_vars=[]
        )

    @property
    def tag(self) -> int:
        """Tag of the constructor, unique within the module."""
        return tag_of(str(self.belong_to.name_hint), self.index)


@py_class("baton.relay.PatternWildcard")
class PatternWildcard(tvm.ir.Node):
    """Pattern that matches everything."""

    def __init__(self) -> None:
        self.__ffi_init__()


@py_class("baton.relay.PatternVar")
class PatternVar(tvm.ir.Node):
    """Pattern that matches everything and binds it to a variable."""

    var: Any = field(structural_eq="def")

    def __init__(self, var: relax.Var) -> None:
        self.__ffi_init__(var=var)


@py_class("baton.relay.PatternConstructor")
class PatternConstructor(tvm.ir.Node):
    """Pattern that matches data of one constructor whose fields match the sub-patterns."""

    constructor: Constructor
    patterns: Any

    def __init__(self, constructor: Constructor, patterns: Sequence[Any] | None = None) -> None:
        self.__ffi_init__(constructor=constructor, patterns=list(patterns or []))


@py_class("baton.relay.PatternTuple")
class PatternTuple(tvm.ir.Node):
    """Pattern that matches a tuple whose fields match the sub-patterns."""

    patterns: Any

    def __init__(self, patterns: Sequence[Any] | None = None) -> None:
        self.__ffi_init__(patterns=list(patterns or []))


@py_class("baton.relay.Clause")
class Clause(tvm.ir.Node):
    """One case of a `match`: a pattern and the value to return if it matches."""

    lhs: Any
    rhs: tvm.ir.Expr

    def __init__(self, lhs: Any, rhs: Any) -> None:
        self.__ffi_init__(lhs=lhs, rhs=_value(rhs))


@py_class("baton.relay.Match")
class Match(_Callable, ExprWithOp):
    """`match` expression: the value of the first clause whose pattern matches."""

    data: tvm.ir.Expr
    clauses: Any
    complete: bool

    def __init__(self, data: Any, clauses: Sequence[Clause], complete: bool = True) -> None:
        self.__ffi_init__(data=_value(data), clauses=list(clauses), complete=bool(complete))


@py_class("baton.relay.RefCreate")
class RefCreate(tvm.ir.Expr):
    """Create a reference that holds a value."""

    value: tvm.ir.Expr

    def __init__(self, value: Any) -> None:
        self.__ffi_init__(value=_value(value))


@py_class("baton.relay.RefRead")
class RefRead(_Callable, ExprWithOp):
    """Read the value of a reference."""

    ref: tvm.ir.Expr

    def __init__(self, ref: Any) -> None:
        self.__ffi_init__(ref=_value(ref))


@py_class("baton.relay.RefWrite")
class RefWrite(tvm.ir.Expr):
    """Write a value to a reference; returns an empty tuple."""

    ref: tvm.ir.Expr
    value: tvm.ir.Expr

    def __init__(self, ref: Any, value: Any) -> None:
        self.__ffi_init__(ref=_value(ref), value=_value(value))


def _value(value: Any) -> Any:
    """Return the expression; for an operator with several results, their tuple."""
    return value.astuple() if hasattr(value, "astuple") else value


def type_of_data(made: Constructor, arguments: Sequence[tvm.ir.Expr]) -> TypeCall | None:
    """Infer the type of constructed data; None if the arguments leave type variables open."""
    found: dict[TypeVar, tvm.ir.Type] = {}
    names = list(made.type_vars)
    for wanted, argument in zip(made.inputs, arguments):
        _solve(wanted, argument.ty, names, found)
    known = [next((ty for var, ty in found.items() if var == name), None) for name in names]
    return None if None in known else made.belong_to(*known)


def _solve(
    wanted: tvm.ir.Type,
    given: tvm.ir.Type,
    names: Sequence[TypeVar],
    found: dict[TypeVar, tvm.ir.Type],
) -> None:
    """Unify `wanted` with `given` and record the type variables that this determines."""
    if isinstance(wanted, TypeVar) and wanted in names and not given.is_missing():
        found.setdefault(wanted, given)
    elif isinstance(wanted, TypeCall) and isinstance(given, TypeCall):
        for pair in zip(wanted.args, given.args):
            _solve(*pair, names, found)
    elif isinstance(wanted, relax.TupleType) and isinstance(given, relax.TupleType):
        for pair in zip(wanted.fields, given.fields):
            _solve(*pair, names, found)


EXPRESSIONS = (Constructor, Match, RefCreate, RefRead, RefWrite)
"""Node classes that have no type until they are evaluated."""


def operands(expr: Any) -> list[tvm.ir.Expr]:
    """Operands of a node, without the values of match clauses."""
    if isinstance(expr, Match):
        return [expr.data]
    if isinstance(expr, RefCreate):
        return [expr.value]
    if isinstance(expr, RefRead):
        return [expr.ref]
    return [expr.ref, expr.value] if isinstance(expr, RefWrite) else []


def with_operands(expr: Any, new: Sequence[tvm.ir.Expr]) -> Any:
    """Rebuild a node with other operands."""
    if isinstance(expr, Match):
        return Match(new[0], list(expr.clauses), expr.complete)
    return type(expr)(*new)


def variables_of(pattern: Any) -> list[relax.Var]:
    """Variables that a pattern binds."""
    if isinstance(pattern, PatternVar):
        return [pattern.var]
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [var for each in pattern.patterns for var in variables_of(each)]
    return []


# Data types of a module.


def type_definitions(mod: tvm.IRModule) -> dict[GlobalTypeVar, TypeData]:
    """The data types that a module defines."""
    return {each.header: each for each in dict(mod.global_infos).get(_TYPES, ())}


def define(mod: tvm.IRModule, *definitions: TypeData) -> None:
    """Add data types to a module, in place."""
    known = type_definitions(mod)
    known.update((each.header, each) for each in definitions)
    if known:
        mod.update_global_info(_TYPES, list(known.values()))


def definition(mod: tvm.IRModule, name: Any) -> TypeData:
    """Look up a data type's definition by name or variable; RelayError if the module has none."""
    wanted = str(getattr(name, "name_hint", name))
    for header, found in type_definitions(mod).items():
        if str(header.name_hint) == wanted:
            return found
    raise RelayError(f"the module has no data type {wanted}")


def get_type(mod: tvm.IRModule, name: Any) -> tuple[Any, ...]:
    """Return the variable of a data type and its constructors in order."""
    found = definition(mod, name)
    return (found.header, *found.constructors)


def constructor(mod: tvm.IRModule, which: str | int) -> Constructor:
    """Look up a constructor by name or tag; RelayError if the module has none."""
    for found in type_definitions(mod).values():
        for each in found.constructors:
            if which in (str(each.name_hint), each.tag):
                return each
    raise RelayError(f"the module has no constructor {which}")
