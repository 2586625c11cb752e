"""Analyses of type kinds, type variables, language features, and cases that a `match` misses."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum, auto
from typing import Any

import tvm
from tvm import relax

from ..errors import RelayError, RelayTypeError
from . import adt
from .adt import Match, PatternConstructor, PatternTuple, PatternWildcard, get_type
from .function import OpenFunction
from .nested_expressions import operands
from .ty import TypeKind
from .variables import in_order, nodes


def check_kind(ty: Any, mod: tvm.IRModule | None = None) -> int:
    """Return the kind of a type: one of `relay.TypeKind`.

    `mod`: if given, checks the number of type arguments of each data type.

    Raises RelayTypeError: the type contains something that is not a type.
    """
    if isinstance(ty, (adt.TypeVar, adt.GlobalTypeVar)):
        return int(ty.kind)
    if isinstance(ty, adt.TypeCall):
        return _kind_of_call(ty, mod)
    if not isinstance(ty, tvm.ir.Type):
        raise RelayTypeError(f"a {type(ty).__name__} is no type")
    for part in _parts(ty):
        if check_kind(part, mod) != TypeKind.Type:
            raise RelayTypeError(f"{ty} is made of {part}, which is no type")
    return TypeKind.Type


def _kind_of_call(ty: adt.TypeCall, mod: tvm.IRModule | None) -> int:
    if check_kind(ty.func, mod) != TypeKind.AdtHandle:
        raise RelayTypeError("only data types take types as arguments")
    for each in ty.args:
        if check_kind(each, mod) != TypeKind.Type:
            raise RelayTypeError(f"{each}, an argument of {ty.func.name_hint}, is no type")
    if mod is not None:
        wanted, given = len(adt.definition(mod, ty.func).type_vars), len(ty.args)
        if wanted != given:
            raise RelayTypeError(f"{ty.func.name_hint} takes {wanted} types, not {given}")
    return TypeKind.Type


def _parts(ty: Any) -> list[Any]:
    """Component types of a type."""
    if isinstance(ty, relax.TupleType):
        return list(ty.fields)
    if isinstance(ty, relax.FuncType):
        return [*(ty.params or []), ty.ret]
    if isinstance(ty, adt.PolymorphicType):
        return [*ty.type_params, *ty.arg_types, ty.ret_type]
    if isinstance(ty, adt.RefType):
        return [ty.value]
    return [ty.func, *ty.args] if isinstance(ty, adt.TypeCall) else []


def _type_vars(ty: Any) -> Iterator[adt.TypeVar]:
    if isinstance(ty, adt.TypeVar):
        yield ty
    for part in _parts(ty):
        yield from _type_vars(part)


def all_type_vars(expr: Any, mod: Any = None) -> list[adt.TypeVar]:
    """All type variables that an expression or type mentions, without duplicates."""
    del mod
    if isinstance(expr, tvm.ir.Type):
        return _each_once(_type_vars(expr))
    found: list[adt.TypeVar] = []
    for node in in_order(expr, lets=True):
        found.extend(_type_vars(node.ty))
        if isinstance(node, OpenFunction):
            found.extend(node.type_params)
            found.extend(_type_vars(node.ret_type) if node.ret_type is not None else ())
    return _each_once(found)


def bound_type_vars(expr: Any, mod: Any = None) -> list[adt.TypeVar]:
    """Type variables bound by functions in an expression, or by a function type."""
    del mod
    if isinstance(expr, tvm.ir.Type):
        own = list(expr.type_params) if isinstance(expr, adt.PolymorphicType) else []
        return _each_once([*own, *(v for part in _parts(expr) for v in bound_type_vars(part))])
    functions = (node for node in nodes(expr) if isinstance(node, OpenFunction))
    return _each_once(var for function in functions for var in function.type_params)


def free_type_vars(expr: Any, mod: Any = None) -> list[adt.TypeVar]:
    """Type variables that an expression or type mentions but does not bind."""
    bound = bound_type_vars(expr)
    return [var for var in all_type_vars(expr, mod) if var not in bound]


def _each_once(found: Any) -> list[adt.TypeVar]:
    once: list[adt.TypeVar] = []
    for var in found:
        if var not in once:
            once.append(var)
    return once


class Feature(IntEnum):
    """Feature of the Relay language."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15
    fLetRec = 16


_FEATURES: tuple[tuple[Any, Feature], ...] = (
    (tvm.ir.GlobalVar, Feature.fGlobalVar),
    (relax.Var, Feature.fVar),
    (tvm.ir.GenericConst, Feature.fConstant),
    (relax.Tuple, Feature.fTuple),
    (relax.TupleGetItem, Feature.fTupleGetItem),
    (tvm.ir.BaseFunc, Feature.fFunction),
    (tvm.ir.Op, Feature.fOp),
    (relax.Call, Feature.fCall),
    (relax.SeqExpr, Feature.fLet),
    (relax.If, Feature.fIf),
    (adt.RefCreate, Feature.fRefCreate),
    (adt.RefRead, Feature.fRefRead),
    (adt.RefWrite, Feature.fRefWrite),
    (adt.Constructor, Feature.fConstructor),
    (adt.Match, Feature.fMatch),
)


def detect_feature(a: Any, b: Any = None) -> set[Feature]:
    """Detect the features used by an expression or by the functions of a module.

    Bindings of typed values count as nested expressions, as in all passes. A value with several
    uses is `fGraph`.
    """
    if isinstance(b, tvm.IRModule) and not isinstance(a, tvm.IRModule):
        a, b = b, a
    found: set[Feature] = set()
    roots = list(a.functions.values()) if isinstance(a, tvm.IRModule) else [a]
    for root in roots if b is None else [b]:
        found |= _features_of(root)
    return found


def _features_of(root: Any) -> set[Feature]:
    found: set[Feature] = set()
    used: list[Any] = []
    for node in nodes(root):
        called = [node.op] if isinstance(node, relax.Call) else []
        own = list(node.params) if isinstance(node, tvm.ir.BaseFunc) else []
        for each in (node, *called, *own):
            found.update(feature for kind, feature in _FEATURES if isinstance(each, kind))
        used += [each for each in operands(node) if operands(each)]
    if any(one.same_as(other) for place, one in enumerate(used) for other in used[:place]):
        found.add(Feature.fGraph)
    return found


class _Fit(Enum):
    """How a clause pattern covers the data described by a case pattern."""

    ALL = auto()
    NONE = auto()
    SOME = auto()


def unmatched_cases(match: Match, mod: tvm.IRModule | None = None) -> list[Any]:
    """Patterns that no clause covers; a clause that names a constructor requires `mod`."""
    patterns = [clause.lhs for clause in match.clauses]
    cases: list[Any] = [PatternWildcard()]
    unmatched = []
    while cases:
        case = cases.pop()
        for pattern in patterns:
            fit = _fit(pattern, case)
            if fit is _Fit.SOME:
                cases.extend(reversed(_split(case, pattern, mod)))
            if fit is not _Fit.NONE:
                break
        else:
            unmatched.append(case)
    return unmatched


def _fit(pattern: Any, case: Any) -> _Fit:
    if not isinstance(pattern, (PatternConstructor, PatternTuple)):
        return _Fit.ALL
    if isinstance(case, PatternWildcard):
        return _Fit.SOME
    if isinstance(pattern, PatternConstructor) and not _same(pattern, case):
        return _Fit.NONE
    fits = [_fit(*pair) for pair in zip(pattern.patterns, case.patterns)]
    if _Fit.NONE in fits:
        return _Fit.NONE
    return _Fit.SOME if _Fit.SOME in fits else _Fit.ALL


def _same(one: PatternConstructor, other: PatternConstructor) -> bool:
    return str(one.constructor.name_hint) == str(other.constructor.name_hint)


def _split(case: Any, pattern: Any, mod: tvm.IRModule | None) -> list[Any]:
    """Split a case into the sub-cases that a pattern distinguishes."""
    if isinstance(case, PatternWildcard):
        if isinstance(pattern, PatternTuple):
            return [PatternTuple([PatternWildcard() for _ in pattern.patterns])]
        if mod is None:
            raise RelayError(
                f"unmatched_cases needs the module, which says what constructors there are beside "
                f"{pattern.constructor.name_hint}"
            )
        _, *constructors = get_type(mod, pattern.constructor.belong_to)
        return [
            PatternConstructor(each, [PatternWildcard() for _ in each.inputs])
            for each in constructors
        ]
    inner = list(case.patterns)
    for place, (own, wanted) in enumerate(zip(inner, pattern.patterns)):
        if _fit(wanted, own) is _Fit.SOME:
            parts = _split(own, wanted, mod)
            return [_with(case, [*inner[:place], part, *inner[place + 1 :]]) for part in parts]
    return [case]


def _with(case: Any, patterns: list[Any]) -> Any:
    if isinstance(case, PatternTuple):
        return PatternTuple(patterns)
    return PatternConstructor(case.constructor, patterns)
