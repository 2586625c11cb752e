"""Derivatives of scalar expressions, backwards: what each leaf of an expression contributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op

from schedules.tir_visit import nodes_of

from ...errors import ScheduleError
from .relations import like

Expr = Any


@dataclass(frozen=True, eq=False)
class Partial:
    """A leaf of an expression, and the factor of its small change in the expression's."""

    leaf: Expr
    factor: Expr  # defined where all conditions hold; elsewhere it is 0
    conditions: tuple[Expr, ...]


# Of functions of one value: (x, f(x)) -> f'(x).
_FUNCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "acos": lambda x, y: -tirx.rsqrt(1.0 - x * x),
    "asin": lambda x, y: tirx.rsqrt(1.0 - x * x),
    "atan": lambda x, y: 1.0 / (1.0 + x * x),
    "cos": lambda x, y: -tirx.sin(x),
    "cosh": lambda x, y: tirx.sinh(x),
    "erf": lambda x, y: tirx.exp(-x * x) * like(x, 2 / math.sqrt(math.pi)),
    "exp": lambda x, y: y,
    "exp10": lambda x, y: y * like(x, math.log(10)),
    "exp2": lambda x, y: y * like(x, math.log(2)),
    "fabs": lambda x, y: tirx.Select(x >= like(x, 0), like(x, 1), like(x, -1)),
    "log": lambda x, y: 1.0 / x,
    "log10": lambda x, y: 1.0 / (x * like(x, math.log(10))),
    "log1p": lambda x, y: 1.0 / (1.0 + x),
    "log2": lambda x, y: 1.0 / (x * like(x, math.log(2))),
    "rsqrt": lambda x, y: y / x * like(x, -0.5),
    "sigmoid": lambda x, y: y * (1.0 - y),
    "sin": lambda x, y: tirx.cos(x),
    "sinh": lambda x, y: tirx.cosh(x),
    "sqrt": lambda x, y: like(x, 0.5) / y,
    "tan": lambda x, y: 1.0 + y * y,
    "tanh": lambda x, y: 1.0 - y * y,
}
_STEPS = ("floor", "ceil", "trunc", "round", "nearbyint")


def partials(
    expr: Expr, factor: Expr, is_leaf: Callable[[Expr], bool], conditions: tuple[Expr, ...] = ()
) -> Iterator[Partial]:
    """Contributions of the leaves to an expression times `factor`.

    `is_leaf`: whether the derivative by a node is wanted.
    Raises ScheduleError: a leaf lies in an expression without a derivative that is known.
    """
    if is_leaf(expr):
        yield Partial(expr, factor, conditions)
        return
    if not str(expr.ty.dtype).startswith(("float", "bfloat")):
        return  # an index or a condition: changes in steps
    for part, its_factor, where in _operands(expr, factor, is_leaf):
        yield from partials(part, its_factor, is_leaf, (*conditions, *where))


_Operands = list[tuple[Expr, Expr, tuple[Expr, ...]]]


def _operands(expr: Expr, factor: Expr, is_leaf: Callable[[Expr], bool]) -> _Operands:
    """(operand, its factor, conditions) of an expression."""
    if isinstance(expr, tirx.Add):
        return [(expr.a, factor, ()), (expr.b, factor, ())]
    if isinstance(expr, tirx.Sub):
        return [(expr.a, factor, ()), (expr.b, -factor, ())]
    if isinstance(expr, tirx.Mul):
        return [(expr.a, factor * expr.b, ()), (expr.b, factor * expr.a, ())]
    if isinstance(expr, tirx.Div):
        return [(expr.a, factor / expr.b, ()), (expr.b, -factor * expr.a / (expr.b * expr.b), ())]
    if isinstance(expr, tirx.Max):
        return _choice(expr.a >= expr.b, expr.a, expr.b, factor)
    if isinstance(expr, tirx.Min):
        return _choice(expr.a <= expr.b, expr.a, expr.b, factor)
    if isinstance(expr, tirx.Select):
        return _choice(expr.condition, expr.true_value, expr.false_value, factor)
    if isinstance(expr, tirx.Cast):
        source = str(expr.value.ty.dtype)
        return [(expr.value, factor.astype(source), ())] if "float" in source else []
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        name = str(expr.op.name).rpartition(".")[2]
        if name in _STEPS:
            return []
        if name == "if_then_else":
            condition, then, otherwise = expr.args
            return _choice(condition, then, otherwise, factor)
        if name == "pow":
            base, exponent = expr.args
            return _power(expr, base, exponent, factor)
        if name in _FUNCTIONS:
            (x,) = expr.args
            return [(x, factor * _FUNCTIONS[name](x, expr), ())]
    if any(is_leaf(node) for kind in (Call, tirx.Var) for node in nodes_of(expr, kind)):
        raise ScheduleError(f"te.gradient: the derivative of {expr} is not known")
    return []


def _choice(condition: Expr, then: Expr, otherwise: Expr, factor: Expr) -> _Operands:
    return [(then, factor, (condition,)), (otherwise, factor, (tirx.Not(condition),))]


def _power(expr: Expr, base: Expr, exponent: Expr, factor: Expr) -> _Operands:
    of_base = factor * exponent * tirx.power(base, exponent - like(exponent, 1))
    of_exponent = factor * expr * tirx.log(base)
    return [(base, of_base, ()), (exponent, of_exponent, ())]
