"""Values that Relax has no form for: functions, data, references. They exist while reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...errors import RelayError
from . import syntax


class Environment:
    """Values of variables; a function's body sees those of the place where it was made."""

    __slots__ = ("outer", "values")

    def __init__(self, outer: Environment | None = None) -> None:
        self.outer = outer
        self.values: dict[syntax.Var, Any] = {}

    def child(self) -> Environment:
        return Environment(self)

    def bind(self, var: syntax.Var, value: Any) -> None:
        self.values[var] = value

    def lookup(self, var: syntax.Var) -> Any:
        """The value, or None if the variable is not bound here."""
        scope: Environment | None = self
        while scope is not None:
            if var in scope.values:
                return scope.values[var]
            scope = scope.outer
        return None


@dataclass(slots=True, eq=False)
class Closure:
    function: syntax.Function
    env: Environment


@dataclass(slots=True, eq=False)
class Data:
    constructor: str
    fields: list[Any]


@dataclass(slots=True, eq=False)
class Reference:
    value: Any


@dataclass(slots=True, eq=False)
class Handle:
    """Run-time data: an expression and its data type; the constructor is not known statically."""

    expr: relax.Expr
    type: syntax.NamedType


@dataclass(slots=True, eq=False)
class Again:
    """What a function returns that goes on with itself, in a loop: the next arguments."""

    arguments: list[relax.Expr]


@dataclass(slots=True, eq=False)
class Step:
    """What a function returns in a loop: its result, or arguments to go on with."""

    expr: relax.Expr


class NotTail(Exception):
    """A function does more with what it returns itself than to return it."""


class NoClause(RelayError):
    """An evaluation that can't go on: no clause of a `match` fits, or its own result is asked for.

    No run takes a branch that can only end so.
    """


def check_is_no_step(value: Any) -> None:
    """Raise NotTail for what a loop's step may only return."""
    if isinstance(value, (Again, Step)):
        raise NotTail


def is_plain(value: Any) -> bool:
    """Whether a value is a tensor or a tuple of such."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, relax.Expr)


def structure(value: Any) -> tuple[Any, list[relax.Expr]]:
    """What a value is but for its tensors, in a form that compares, and the tensors."""
    if isinstance(value, relax.Expr):
        return "tensor", [value]
    if isinstance(value, Handle):
        return ("handle", value.type), [value.expr]
    if isinstance(value, Step):
        return ("step",), [value.expr]
    if isinstance(value, list):
        parts, kind = value, ("tuple",)
    elif isinstance(value, Data):
        parts, kind = value.fields, ("data", value.constructor)  # type: ignore[assignment]
    elif isinstance(value, Closure):
        return ("function", value.function, value.env), []
    else:
        return ("this", value), []
    shapes, leaves = [], []
    for part in parts:
        shape, found = structure(part)
        shapes.append(shape)
        leaves += found
    return (*kind, tuple(shapes)), leaves


def leaf_count(shape: Any) -> int:
    """How many tensors a structure takes."""
    if shape == "tensor" or shape[0] in ("handle", "step"):
        return 1
    parts = {"tuple": 1, "data": 2}.get(shape[0])
    return 0 if parts is None else sum(map(leaf_count, shape[parts]))


def rebuild(shape: Any, leaves: list[relax.Expr]) -> Any:
    """The value of a structure with other tensors, which are taken from the list."""
    if shape == "tensor":
        return leaves.pop(0)
    if shape[0] == "handle":
        return Handle(leaves.pop(0), shape[1])
    if shape[0] == "step":
        return Step(leaves.pop(0))
    if shape[0] == "tuple":
        return [rebuild(part, leaves) for part in shape[1]]
    if shape[0] == "data":
        return Data(shape[1], [rebuild(part, leaves) for part in shape[2]])
    if shape[0] == "function":
        return Closure(shape[1], shape[2])
    return shape[1]
