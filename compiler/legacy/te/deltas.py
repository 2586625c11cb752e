"""Sums in which indices have to equal others: variables that the equations give are put in.

sum over i, r where 2 * i + r == a    ->    sum over r where (a - r) % 2 == 0 and
                                            0 <= (a - r) // 2 < n, with i = (a - r) // 2
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import sym, te, tirx
from tvm.ir import Range

from schedules.tir_visit import nodes_of

from .dataflow import loads, map_loads, substitute
from .relations import constant

Expr = Any
Var = Any


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of a value over axes, where equations and conditions hold."""

    value: Expr
    axes: list[tuple[Var, Expr, Expr]]  # variable, first value, and extent
    equations: list[tuple[Expr, Expr]]
    conditions: list[Expr]

    def with_values(self, values: dict[Var, Expr]) -> Sum:
        """The sum with variables replaced."""
        return Sum(
            substitute(self.value, values),
            [axis for axis in self.axes if axis[0] not in values],
            [(substitute(a, values), substitute(b, values)) for a, b in self.equations],
            [substitute(each, values) for each in self.conditions],
        )


def solved(total: Sum) -> Sum:
    """The sum over those axes alone that its equations leave free; the longest go first."""
    simplify = sym.Analyzer().simplify
    axes = sorted(total.axes, key=_length, reverse=True)
    for var, first, extent in axes:
        for index, (left, right) in enumerate(total.equations):
            found = _solution(simplify(left - right), var)
            if found is None:
                continue
            value, exact = found
            inside = [value >= first, value < first + extent]
            others = [each for place, each in enumerate(total.equations) if place != index]
            total = Sum(total.value, total.axes, others, total.conditions).with_values({var: value})
            total.conditions.extend([*exact, *inside])
            break
    return total


def _length(axis: tuple[Var, Expr, Expr]) -> float:
    extent = constant(axis[2])
    return math.inf if extent is None else extent


def _solution(difference: Expr, var: Var) -> tuple[Expr, list[Expr]] | None:
    """Solve `difference == 0` for a variable; also the conditions for an integer solution."""
    found = list(sym.detect_linear_equation(difference, [var]))
    if len(found) != 2 or any(each.same_as(var) for each in nodes_of(found[1], tirx.Var)):
        return None
    factor, rest = constant(found[0]), found[1]
    if not factor:
        return None
    rest = rest if factor < 0 else -rest
    if abs(factor) == 1:
        return rest, []
    return tirx.floordiv(rest, abs(factor)), [tirx.floormod(rest, abs(factor)) == 0]


def as_expr(total: Sum, known: Sequence[tuple[Var, Expr, Expr]]) -> Expr:
    """The sum as what a `te.compute` may compute.

    `known`: variables that the compute has, with their first values and extents.
    """
    axes = [
        te.reduce_axis(Range.from_min_extent(first, extent), var.name)
        for var, first, extent in total.axes
    ]
    values = {var: axis.var for (var, _, _), axis in zip(total.axes, axes)}
    total = total.with_values(values)
    analyzer = sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    for var, first, extent in known:
        analyzer.bind(var, Range.from_min_extent(first, extent))
    conditions = [*total.conditions, *(tirx.EQ(a, b) for a, b in total.equations)]
    conditions = [_simple(each, analyzer) for each in conditions]
    value = _simple(total.value, analyzer)
    # What conditions read may lie outside of its tensor where those on indices do not hold.
    for condition in reversed(conditions):
        if _reads(condition):
            value = _where(condition, value)
    on_indices = [each for each in conditions if not _reads(each) and constant(each) != 1]
    holds = functools.reduce(tirx.And, on_indices) if on_indices else None
    if axes:
        return te.sum(value, axis=axes, **({} if holds is None else {"where": holds}))
    return value if holds is None else _where(holds, value)


def _where(condition: Expr, value: Expr) -> Expr:
    return tirx.if_then_else(condition, value, tirx.const(0, str(value.ty.dtype)))


def _reads(expr: Expr) -> bool:
    return any(True for _ in loads(expr))


def _simple(expr: Expr, analyzer: sym.Analyzer) -> Expr:
    """An expression in a simpler form; of one that reads tensors, only where it reads them."""
    if not _reads(expr):
        return analyzer.simplify(expr)
    return map_loads(expr, lambda tensor, indices: tensor(*map(analyzer.simplify, indices)))
