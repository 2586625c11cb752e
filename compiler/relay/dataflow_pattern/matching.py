"""Match a pattern against a nested expression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax

from .. import dialect
from ..function import OpenFunction
from ..nested_expressions import handle, operands, post_order

if TYPE_CHECKING:
    from .patterns import DFPattern

Matches = dict[Any, list[Any]]


def match(pattern: DFPattern, expr: Any) -> Matches | None:
    """Map each sub-pattern to its matched expressions; None if the expression does not match."""
    matcher = Matcher()
    return matcher.found if matcher.match(pattern, expr) else None


class Matcher:
    """State of a match: the expressions matched so far by each sub-pattern."""

    def __init__(self) -> None:
        self.found: Matches = {}
        self.order: list[DFPattern] = []

    def match(self, pattern: DFPattern, expr: Any) -> bool:
        """Match a sub-pattern; a repeated sub-pattern must match the same expression."""
        known = self.found.get(pattern)
        if known is not None:
            return bool(known[0].same_as(expr))
        mark = len(self.order)
        if not pattern.matches(self, expr):
            self.forget(mark)
            return False
        if pattern not in self.found:
            self.found[pattern] = [expr]
            self.order.append(pattern)
        return True

    def add(self, found: Matches) -> None:
        """Record further matched expressions of sub-patterns."""
        for pattern, exprs in found.items():
            if pattern not in self.found:
                self.order.append(pattern)
            self.found.setdefault(pattern, []).extend(exprs)

    def forget(self, mark: int) -> None:
        """Drop the matches recorded since `order` had `mark` sub-patterns."""
        for pattern in self.order[mark:]:
            del self.found[pattern]
        del self.order[mark:]

    def match_all(self, patterns: list[DFPattern], exprs: list[Any]) -> bool:
        """Match several sub-patterns against one expression each."""
        mark = len(self.order)
        if len(patterns) == len(exprs) and all(map(self.match, patterns, exprs)):
            return True
        self.forget(mark)
        return False


def dominated(matcher: Matcher, parent: DFPattern, path: DFPattern, expr: Any) -> bool:
    """Whether a node that matches the parent dominates `expr` through the path; nearest first."""
    for node in reversed(list(post_order(expr))):
        mark = len(matcher.order)
        found = not node.same_as(expr) and matcher.match(parent, node)
        if found and _reaches(matcher, node, path, expr, set()):
            return True
        matcher.forget(mark)
    return False


def _reaches(matcher: Matcher, parent: Any, path: DFPattern, expr: Any, seen: set[int]) -> bool:
    """Whether every input of `expr` is the node `parent` or derives from it through the path.

    The path pattern can match many nodes: each node is matched separately, and all are recorded.
    """
    reached = False
    for below in operands(expr):
        if below.same_as(parent):
            reached = True
            continue
        if isinstance(below, (tvm.ir.GenericConst, relax.Var)) and reached:
            continue
        if handle(below) in seen:
            continue
        seen.add(handle(below))
        on_path = match(path, below)
        if on_path is None:
            return False
        matcher.add(on_path)
        if not isinstance(below, tvm.ir.GenericConst):
            if not operands(below) or not _reaches(matcher, parent, path, below, seen):
                return False
            reached = True
    return True


def same(wanted: Any, expr: Any) -> bool:
    """Whether an expression is the same operator or node, or is structurally equal."""
    if isinstance(wanted, tvm.ir.Op):
        return isinstance(expr, tvm.ir.Op) and wanted.name == expr.name
    return bool(wanted.same_as(expr) or tvm_ffi.structural_equal(wanted, expr))


def has_shape_of(ty: Any, shape: list[Any]) -> bool:
    """Whether a type is a tensor with these extents; only integer extents are compared."""
    if not isinstance(ty, relax.TensorType) or ty.shape is None or len(shape) != ty.ndim:
        return False
    return all(
        not isinstance(want, int) or (isinstance(have, tvm.tirx.IntImm) and int(have) == want)
        for want, have in zip(shape, ty.shape.values)
    )


def has_attributes(expr: Any, wanted: dict[str, Any]) -> bool:
    """Whether an operator, call or function has these attributes."""
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
