"""Algebraic data types, `match`, references and type variables, as scripts build them.

TVM has no nodes for them any more. These are nodes of the same kind, so that they stand in
expressions, functions and modules as all others do. They have no form at run time: what they say
is evaluated before a module is compiled (`program.evaluated`).

The data types of a module are among its global infos, since a module holds functions alone.
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
    """The number of a data type's constructor, in int32, that tells it from those of others."""
    return (zlib.crc32(data_type.encode()) & 0x7F) << 24 | index


# Expressions.


class _Callable:
    """What a script calls like a function."""

    def __call__(self, *args: Any) -> Any:
        made = relax.Call(self, list(map(_value, args)))
        ty = type_of_data(self, list(made.args)) if isinstance(self, Constructor) else None
        if ty is not None:
            relax.expr._update_type(made, ty)
        return made


@py_class("baton.relay.Constructor")
class Constructor(_Callable, tvm.ir.Expr):
    """One way to make data: `Constructor(name, types of the fields, the type's name)`."""

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
        """A number that tells it from all constructors of a module."""
        return tag_of(str(self.belong_to.name_hint), self.index)


@py_class("baton.relay.PatternWildcard")
class PatternWildcard(tvm.ir.Node):
    """Fits everything."""

    def __init__(self) -> None:
        self.__ffi_init__()


@py_class("baton.relay.PatternVar")
class PatternVar(tvm.ir.Node):
    """Fits everything, and names it."""

    var: Any = field(structural_eq="def")

    def __init__(self, var: relax.Var) -> None:
        self.__ffi_init__(var=var)


@py_class("baton.relay.PatternConstructor")
class PatternConstructor(tvm.ir.Node):
    """Fits data of a constructor whose fields fit patterns."""

    constructor: Constructor
    patterns: Any

    def __init__(self, constructor: Constructor, patterns: Sequence[Any] | None = None) -> None:
        self.__ffi_init__(constructor=constructor, patterns=list(patterns or []))


@py_class("baton.relay.PatternTuple")
class PatternTuple(tvm.ir.Node):
    """Fits a tuple whose fields fit patterns."""

    patterns: Any

    def __init__(self, patterns: Sequence[Any] | None = None) -> None:
        self.__ffi_init__(patterns=list(patterns or []))


@py_class("baton.relay.Clause")
class Clause(tvm.ir.Node):
    """A pattern, and the value where it fits."""

    lhs: Any
    rhs: tvm.ir.Expr

    def __init__(self, lhs: Any, rhs: Any) -> None:
        self.__ffi_init__(lhs=lhs, rhs=_value(rhs))


@py_class("baton.relay.Match")
class Match(_Callable, ExprWithOp):
    """The value of the first clause that fits."""

    data: tvm.ir.Expr
    clauses: Any
    complete: bool

    def __init__(self, data: Any, clauses: Sequence[Clause], complete: bool = True) -> None:
        self.__ffi_init__(data=_value(data), clauses=list(clauses), complete=bool(complete))


@py_class("baton.relay.RefCreate")
class RefCreate(tvm.ir.Expr):
    """A reference that holds a value."""

    value: tvm.ir.Expr

    def __init__(self, value: Any) -> None:
        self.__ffi_init__(value=_value(value))


@py_class("baton.relay.RefRead")
class RefRead(_Callable, ExprWithOp):
    """What a reference holds."""

    ref: tvm.ir.Expr

    def __init__(self, ref: Any) -> None:
        self.__ffi_init__(ref=_value(ref))


@py_class("baton.relay.RefWrite")
class RefWrite(tvm.ir.Expr):
    """Puts a value into a reference; an empty tuple."""

    ref: tvm.ir.Expr
    value: tvm.ir.Expr

    def __init__(self, ref: Any, value: Any) -> None:
        self.__ffi_init__(ref=_value(ref), value=_value(value))


def _value(value: Any) -> Any:
    """An expression; of an operator with several results, the tuple of them."""
    return value.astuple() if hasattr(value, "astuple") else value


def type_of_data(made: Constructor, arguments: Sequence[tvm.ir.Expr]) -> TypeCall | None:
    """The type of what a constructor makes of arguments; None where they do not tell all of it."""
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
    """Note what type variables are where a type meets a given one."""
    if isinstance(wanted, TypeVar) and wanted in names and not given.is_missing():
        found.setdefault(wanted, given)
    elif isinstance(wanted, TypeCall) and isinstance(given, TypeCall):
        for pair in zip(wanted.args, given.args):
            _solve(*pair, names, found)
    elif isinstance(wanted, relax.TupleType) and isinstance(given, relax.TupleType):
        for pair in zip(wanted.fields, given.fields):
            _solve(*pair, names, found)


EXPRESSIONS = (Constructor, Match, RefCreate, RefRead, RefWrite)
"""Expressions that have no type before they are evaluated."""


def operands(expr: Any) -> list[tvm.ir.Expr]:
    """The expressions that a node is made of, those behind patterns left out."""
    if isinstance(expr, Match):
        return [expr.data]
    if isinstance(expr, RefCreate):
        return [expr.value]
    if isinstance(expr, RefRead):
        return [expr.ref]
    return [expr.ref, expr.value] if isinstance(expr, RefWrite) else []


def with_operands(expr: Any, new: Sequence[tvm.ir.Expr]) -> Any:
    """The same node over other operands."""
    if isinstance(expr, Match):
        return Match(new[0], list(expr.clauses), expr.complete)
    return type(expr)(*new)


def variables_of(pattern: Any) -> list[relax.Var]:
    """The variables that a pattern binds."""
    if isinstance(pattern, PatternVar):
        return [pattern.var]
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [var for each in pattern.patterns for var in variables_of(each)]
    return []


# Data types of a module.


def type_definitions(mod: tvm.IRModule) -> dict[GlobalTypeVar, TypeData]:
    """The data types that a module defines."""
    found = dict(mod.global_infos).get(_TYPES, ())
    return {each.header: each for each in found}


def define(mod: tvm.IRModule, *definitions: TypeData) -> None:
    """Add data types to a module, in place."""
    known = type_definitions(mod)
    known.update((each.header, each) for each in definitions)
    if known:
        mod.update_global_info(_TYPES, list(known.values()))


def definition(mod: tvm.IRModule, name: Any) -> TypeData:
    """The definition of a data type, by its name or its variable.

    Raises
    ------
    RelayError
        The module has none of that name.
    """
    wanted = str(getattr(name, "name_hint", name))
    for header, found in type_definitions(mod).items():
        if str(header.name_hint) == wanted:
            return found
    raise RelayError(f"the module has no data type {wanted}")


def get_type(mod: tvm.IRModule, name: Any) -> tuple[Any, ...]:
    """A data type's variable, and its constructors in order."""
    found = definition(mod, name)
    return (found.header, *found.constructors)


def constructor(mod: tvm.IRModule, which: str | int) -> Constructor:
    """A constructor of a module's data types by its name or its tag.

    Raises
    ------
    RelayError
        There is none.
    """
    for found in type_definitions(mod).values():
        for each in found.constructors:
            if which in (str(each.name_hint), each.tag):
                return each
    raise RelayError(f"the module has no constructor {which}")
