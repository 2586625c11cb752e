"""Matching a pattern against a nested expression."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from .. import dialect
from ..expr import value_of
from ..function import OpenFunction
from ..nest import handle, nested, operands
from . import patterns as p

Matches = dict[Any, list[Any]]

_COMMUTATIVE = ("add", "multiply")


def match(pattern: p.DFPattern, expr: Any) -> Matches | None:
    """What each part of the pattern stands for; None if the expression does not match."""
    matcher = _Matcher()
    return matcher.found if matcher.match(pattern, expr) else None


class _Matcher:
    def __init__(self) -> None:
        self.found: Matches = {}
        self.order: list[p.DFPattern] = []

    def match(self, pattern: p.DFPattern, expr: Any) -> bool:
        known = self.found.get(pattern)
        if known is not None:
            return bool(known[0].same_as(expr))
        mark = len(self.order)
        if not self._matches(pattern, expr):
            self._forget(mark)
            return False
        if pattern not in self.found:
            self.found[pattern] = [expr]
            self.order.append(pattern)
        return True

    def _forget(self, mark: int) -> None:
        for pattern in self.order[mark:]:
            del self.found[pattern]
        del self.order[mark:]

    def _all(self, patterns: list[p.DFPattern], exprs: list[Any]) -> bool:
        mark = len(self.order)
        if len(patterns) == len(exprs) and all(map(self.match, patterns, exprs)):
            return True
        self._forget(mark)
        return False

    def _matches(self, pattern: p.DFPattern, expr: Any) -> bool:
        if isinstance(pattern, p.WildcardPattern):
            return pattern.pattern is None or self.match(pattern.pattern, expr)
        if isinstance(pattern, p.CallPattern):
            return self._call(pattern, expr)
        if isinstance(pattern, p.ExprPattern):
            return _same(pattern.expr, expr)
        if isinstance(pattern, p.AltPattern):
            return self.match(pattern.left, expr) or self.match(pattern.right, expr)
        if isinstance(pattern, p.VarPattern):
            return isinstance(expr, relax.Var) and pattern.name in ("", str(expr.name))
        if isinstance(pattern, p.ConstantPattern):
            return isinstance(expr, tvm.ir.GenericConst)
        if isinstance(pattern, p.TuplePattern):
            return isinstance(expr, relax.Tuple) and (
                pattern.fields is None or self._all(pattern.fields, list(expr.fields))
            )
        if isinstance(pattern, p.TupleGetItemPattern):
            return (
                isinstance(expr, relax.TupleGetItem)
                and pattern.index in (None, -1, int(expr.index))
                and self.match(pattern.tuple, expr.tuple_value)
            )
        if isinstance(pattern, p.IfPattern):
            return isinstance(expr, relax.If) and self._all(
                pattern.children(),
                [expr.cond, value_of(expr.true_branch), value_of(expr.false_branch)],
            )
        if isinstance(pattern, p.LetPattern):
            return self._let(pattern, expr)
        if isinstance(pattern, p.FunctionPattern):
            return self._function(pattern, expr)
        if isinstance(pattern, p.AttrPattern):
            return self.match(pattern.pattern, expr) and _has_attributes(expr, pattern.attrs)
        if isinstance(pattern, p.DominatorPattern):
            return self._dominator(pattern, expr)
        return self._typed(pattern, expr)

    def _call(self, pattern: p.CallPattern, expr: Any) -> bool:
        if not isinstance(expr, relax.Call) or not self.match(pattern.op, expr.op):
            return False
        if pattern.args is None:
            return True
        args = list(expr.args)
        if self._all(pattern.args, args):
            return True
        commutes = len(args) == 2 and dialect.relay_name(expr) in _COMMUTATIVE
        return commutes and self._all(pattern.args, args[::-1])

    def _let(self, pattern: p.LetPattern, expr: Any) -> bool:
        if not isinstance(expr, relax.SeqExpr):
            return False
        bindings = [binding for block in expr.blocks for binding in block.bindings]
        if not bindings or not isinstance(bindings[0], relax.VarBinding):
            return False
        first, rest = bindings[0], bindings[1:]
        body = expr.body if not rest else relax.SeqExpr([relax.BindingBlock(rest)], expr.body)
        return self._all(pattern.children(), [first.var, first.value, body])

    def _function(self, pattern: p.FunctionPattern, expr: Any) -> bool:
        if not isinstance(expr, (relax.Function, OpenFunction)):
            return False
        if pattern.params is not None and not self._all(pattern.params, list(expr.params)):
            return False
        body = nested(expr) if isinstance(expr, relax.Function) else expr.body
        return self.match(pattern.body, body)

    def _typed(self, pattern: p.DFPattern, expr: Any) -> bool:
        if isinstance(pattern, p.TypePattern):
            return self.match(pattern.pattern, expr) and bool(
                tvm_ffi.structural_equal(expr.ty, pattern.type, map_free_vars=True)
            )
        ty = expr.ty
        if isinstance(pattern, p.DataTypePattern):
            return self.match(pattern.pattern, expr) and (
                isinstance(ty, relax.TensorType) and str(ty.dtype) == pattern.dtype
            )
        assert isinstance(pattern, p.ShapePattern)
        return self.match(pattern.pattern, expr) and _has_shape(ty, pattern.shape)

    def _dominator(self, pattern: p.DominatorPattern, expr: Any) -> bool:
        return self.match(pattern.child, expr) and self._reaches(pattern, expr, set())

    def _reaches(self, pattern: p.DominatorPattern, expr: Any, seen: set[int]) -> bool:
        """Whether every input of `expr` is the parent or, through the path, comes from it.

        Nodes on the path are many to one pattern, so they are not remembered as its match.
        """
        reached = False
        for below in operands(expr):
            if isinstance(below, (tvm.ir.GenericConst, relax.Var)) and reached:
                continue
            if self.match(pattern.parent, below):
                reached = True
                continue
            if handle(below) in seen:
                continue
            seen.add(handle(below))
            on_path = match(pattern.path, below)
            if on_path is None:
                return False
            if operands(below):
                if not self._reaches(pattern, below, seen):
                    return False
                reached = True
            elif not isinstance(below, tvm.ir.GenericConst):
                return False
        return reached or pattern.parent in self.found


def _same(wanted: Any, expr: Any) -> bool:
    if isinstance(wanted, tvm.ir.Op):
        return isinstance(expr, tvm.ir.Op) and wanted.name == expr.name
    return bool(wanted.same_as(expr) or tvm_ffi.structural_equal(wanted, expr))


def _has_shape(ty: Any, shape: list[Any]) -> bool:
    if not isinstance(ty, relax.TensorType) or ty.shape is None or len(shape) != ty.ndim:
        return False
    return all(
        not isinstance(want, int) or (isinstance(have, tvm.tirx.IntImm) and int(have) == want)
        for want, have in zip(shape, ty.shape.values)
    )


def _has_attributes(expr: Any, wanted: dict[str, Any]) -> bool:
    if isinstance(expr, tvm.ir.Op):
        return all(
            expr.has_attr(key) and _equal(expr.get_attr(key), value)
            for key, value in wanted.items()
        )
    if not isinstance(expr, (relax.Call, relax.Function, OpenFunction)) or expr.attrs is None:
        return False
    have = {str(key): value for key, value in expr.attrs.items()}
    return all(key in have and _equal(have[key], value) for key, value in wanted.items())


def _equal(have: Any, want: Any) -> bool:
    have, want = dialect.plain(have), dialect.plain(want)
    if isinstance(have, list) or isinstance(want, list):
        return (
            isinstance(have, list)
            and isinstance(want, list)
            and len(have) == len(want)
            and all(map(_equal, have, want))
        )
    if isinstance(have, float) or isinstance(want, float):
        numbers = isinstance(have, (int, float)) and isinstance(want, (int, float))
        return numbers and math.isclose(have, want, rel_tol=1e-12)
    if isinstance(have, (str, int)) or have is None:
        return bool(have == want)
    return bool(tvm_ffi.structural_equal(have, want))
