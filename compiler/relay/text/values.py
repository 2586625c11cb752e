"""Compile-time values without a Relax equivalent: functions, data, references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...errors import RelayError
from . import syntax


class Environment:
    """Lexical environment: variable bindings of a scope and its enclosing scopes."""

    __slots__ = ("outer", "values")

    def __init__(self, outer: Environment | None = None) -> None:
        self.outer = outer
        self.values: dict[syntax.Var, Any] = {}

    def child(self) -> Environment:
        return Environment(self)

    def bind(self, var: syntax.Var, value: Any) -> None:
        self.values[var] = value

    def lookup(self, var: syntax.Var) -> Any:
        """Value of a variable; None if it is not bound here."""
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
    """Tail call of a loop: the next arguments."""

    arguments: list[relax.Expr]


@dataclass(slots=True, eq=False)
class Step:
    """Result of a loop step: the loop's result or the next arguments."""

    expr: relax.Expr


class NotTail(Exception):
    """Raised if the result of a recursive call is used other than as the function's result."""


class NoClause(RelayError):
    """No clause fits, or a value depends on itself; a branch that always ends so is unreachable."""


def check_is_no_step(value: Any) -> None:
    """Raise NotTail for loop steps, which can only be returned."""
    if isinstance(value, (Again, Step)):
        raise NotTail


def is_plain(value: Any) -> bool:
    """Whether a value is a tensor or a tuple of tensors."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, relax.Expr)


def structure(value: Any) -> tuple[Any, list[relax.Expr]]:
    """Split a value into a comparable structure and its tensors."""
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
    """Number of tensors in a structure."""
    if shape == "tensor" or shape[0] in ("handle", "step"):
        return 1
    parts = {"tuple": 1, "data": 2}.get(shape[0])
    return 0 if parts is None else sum(map(leaf_count, shape[parts]))


def rebuild(shape: Any, leaves: list[relax.Expr]) -> Any:
    """Rebuild a value from its structure and tensors, which are removed from the list."""
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
