"""Patterns over nested Relay expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tvm
import tvm_ffi
from tvm import relax

from .. import dialect
from ..expr import value_of
from ..function import OpenFunction
from ..nested_expressions import nested
from .matching import Matcher, has_attributes, has_shape_of, match, reaches, same
from .partition import partition

_COMMUTATIVE = ("add", "multiply")


class DFPattern:
    """Base class of patterns. A repeated pattern object must match the same expression."""

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        parts: Any = args[0] if len(args) == 1 and not isinstance(args[0], DFPattern) else args
        return CallPattern(self, parts)  # None: any operands

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """Require these attributes of the call, function or operator."""
        return AttrPattern(self, dict(attrs))

    def has_type(self, ttype: Any) -> TypePattern:
        """Require exactly this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Require this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Require this shape."""
        return ShapePattern(self, list(shape))

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """Match this pattern, or the pattern that the function makes of it."""
        return self | option_constructor(self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Create a dominator pattern with this pattern as the child."""
        return DominatorPattern(parent, path or wildcard(), self)

    def match(self, expr: Any) -> bool:
        """Match the pattern at the root of an expression."""
        return match(self, expr) is not None

    def partition(
        self,
        expr: Any,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[Any], bool] = lambda _: True,
    ) -> Any:
        """Outline every match in an expression into a function.

        Parameters
        ----------
        attrs : dict, optional
            Attributes of these functions, in addition to `PartitionedFromPattern`.
        check : callable
            Called with the root of a match; False rejects the match.
        """
        return partition(self, expr, attrs, check)

    embeds: ClassVar[bool] = False
    """Whether a matched constant is embedded in a partitioned function rather than an input."""

    is_scope: ClassVar[bool] = False
    """Whether variables matched by sub-patterns are local and thus not inputs of the match."""

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        """Whether an expression matches; `matcher` holds the matches of other patterns."""
        raise NotImplementedError

    def children(self) -> list[DFPattern]:
        """Direct sub-patterns, in operand order of the expression."""
        return []

    def parts(self) -> list[DFPattern]:
        """Patterns that must also match: the children, and the target of a redirected wildcard."""
        return self.children()

    def repeated(self) -> list[DFPattern]:
        """Children that match any number of nodes, none of which is an input of the match."""
        return []

    def entering(self, found: Sequence[Any]) -> list[Any]:
        """Inputs of a match contributed by the expressions that this pattern matched."""
        return [] if self.parts() else list(found)

    def redirect_to(self, pattern: DFPattern) -> None:
        raise NotImplementedError("only a wildcard can be redirected")


class ExprPattern(DFPattern):
    """Matches one expression: an operator by name, or a specific node."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    embeds = True

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return same(self.expr, expr)


class VarPattern(DFPattern):
    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, relax.Var) and self.name in ("", str(expr.name))


class ConstantPattern(DFPattern):
    embeds = True

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, tvm.ir.GenericConst)


class WildcardPattern(DFPattern):
    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Match another pattern from now on, which may contain this one (recursion)."""
        self.pattern = pattern

    def parts(self) -> list[DFPattern]:
        return [] if self.pattern is None else [self.pattern]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return self.pattern is None or matcher.match(self.pattern, expr)


class CallPattern(DFPattern):
    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op = op
        self.args = None if args is None else list(args)

    def children(self) -> list[DFPattern]:
        return [self.op, *(self.args or [])]

    def entering(self, found: Sequence[Any]) -> list[Any]:
        return [each for call in found for each in call.args] if self.args is None else []

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        if not isinstance(expr, relax.Call):
            return False
        if not matcher.match(self.op, expr.op):
            return any(each.matches(matcher, expr) for each in self._regrouped(expr))
        if self.args is None:
            return True
        args = list(expr.args)
        if matcher.match_all(self.args, args):
            return True
        commutes = len(args) == 2 and dialect.relay_name(expr) in _COMMUTATIVE
        return commutes and matcher.match_all(self.args, args[::-1])

    def _regrouped(self, expr: relax.Call) -> Iterator[CallPattern]:
        """Equivalent call patterns with multiply and divide in the order of the expression.

        (a * b) / c, a * (b / c) and (a / c) * b are equivalent.
        """
        name, other = _operator(self), dialect.relay_name(expr)
        if {name, other} != {"multiply", "divide"} or not self.args or len(self.args) != 2:
            return
        if not any(_calls(arg, name) for arg in expr.args):
            return
        for part, rest in (self.args, self.args[::-1]):
            if not isinstance(part, CallPattern) or _operator(part) != other or not part.args:
                continue
            first, second = part.args
            if name == "multiply":
                yield part.op(self.op(first, rest), second)
            elif part is self.args[0]:
                yield part.op(second, self.op(first, rest))
                yield part.op(first, self.op(second, rest))


def _operator(pattern: CallPattern) -> str:
    """Name of the operator that a pattern calls; "" if any operator matches."""
    op = pattern.op.expr if isinstance(pattern.op, ExprPattern) else None
    return str(op.name) if isinstance(op, tvm.ir.Op) else ""


def _calls(expr: Any, name: str) -> bool:
    return isinstance(expr, relax.Call) and dialect.relay_name(expr) == name


class FunctionPattern(DFPattern):
    is_scope = True

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params = None if params is None else list(params)
        self.body = body

    def children(self) -> list[DFPattern]:
        return [*(self.params or []), self.body]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        if not isinstance(expr, (relax.Function, OpenFunction)):
            return False
        if self.params is not None and not matcher.match_all(self.params, list(expr.params)):
            return False
        body = nested(expr) if isinstance(expr, relax.Function) else expr.body
        return matcher.match(self.body, body)


class TuplePattern(DFPattern):
    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = None if fields is None else list(fields)

    def children(self) -> list[DFPattern]:
        return list(self.fields or [])

    def entering(self, found: Sequence[Any]) -> list[Any]:
        if self.fields is None:
            return [each for whole in found for each in whole.fields]
        return super().entering(found)

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, relax.Tuple) and (
            self.fields is None or matcher.match_all(self.fields, list(expr.fields))
        )


class TupleGetItemPattern(DFPattern):
    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple = tuple_value
        self.index = index

    def children(self) -> list[DFPattern]:
        return [self.tuple]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return (
            isinstance(expr, relax.TupleGetItem)
            and self.index in (None, -1, int(expr.index))
            and matcher.match(self.tuple, expr.tuple_value)
        )


class IfPattern(DFPattern):
    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond = cond
        self.true_branch = true_branch
        self.false_branch = false_branch

    def children(self) -> list[DFPattern]:
        return [self.cond, self.true_branch, self.false_branch]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, relax.If) and matcher.match_all(
            self.children(), [expr.cond, value_of(expr.true_branch), value_of(expr.false_branch)]
        )


class LetPattern(DFPattern):
    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.var = var
        self.value = value
        self.body = body

    def children(self) -> list[DFPattern]:
        return [self.var, self.value, self.body]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        if not isinstance(expr, relax.SeqExpr):
            return False
        bindings = [binding for block in expr.blocks for binding in block.bindings]
        if not bindings or not isinstance(bindings[0], relax.VarBinding):
            return False
        first, rest = bindings[0], bindings[1:]
        body = expr.body if not rest else relax.SeqExpr([relax.BindingBlock(rest)], expr.body)
        return matcher.match_all(self.children(), [first.var, first.value, body])


class AltPattern(DFPattern):
    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left = left
        self.right = right

    def children(self) -> list[DFPattern]:
        return [self.left, self.right]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.left, expr) or matcher.match(self.right, expr)


class AttrPattern(DFPattern):
    def __init__(self, pattern: DFPattern, attrs: dict[str, Any]) -> None:
        self.pattern = pattern
        self.attrs = attrs

    def children(self) -> list[DFPattern]:
        return [self.pattern]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.pattern, expr) and has_attributes(expr, self.attrs)


class TypePattern(DFPattern):
    def __init__(self, pattern: DFPattern, ty: Any) -> None:
        self.pattern = pattern
        self.type = ty

    def children(self) -> list[DFPattern]:
        return [self.pattern]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.pattern, expr) and bool(
            tvm_ffi.structural_equal(expr.ty, self.type, map_free_vars=True)
        )


class DataTypePattern(DFPattern):
    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        self.pattern = pattern
        self.dtype = str(dtype)

    def children(self) -> list[DFPattern]:
        return [self.pattern]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.pattern, expr) and (
            isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == self.dtype
        )


class ShapePattern(DFPattern):
    def __init__(self, pattern: DFPattern, shape: list[Any]) -> None:
        self.pattern = pattern
        self.shape = shape

    def children(self) -> list[DFPattern]:
        return [self.pattern]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.pattern, expr) and has_shape_of(expr.ty, self.shape)


class DominatorPattern(DFPattern):
    """Matches a child whose inputs all derive from one parent through the path."""

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent = parent
        self.path = path
        self.child = child

    def children(self) -> list[DFPattern]:
        return [self.parent, self.path, self.child]

    def repeated(self) -> list[DFPattern]:
        return [self.parent, self.path]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.child, expr) and reaches(
            matcher, self.parent, self.path, expr, set()
        )


def is_op(op_name: str) -> ExprPattern:
    """Match the Relay operator with this name; call it with operand patterns."""
    return ExprPattern(dialect.operator(op_name))


def is_expr(expr: Any) -> ExprPattern:
    """Match a specific expression."""
    return ExprPattern(expr)


def wildcard() -> WildcardPattern:
    """Match any expression."""
    return WildcardPattern()


def is_var(name: str = "") -> VarPattern:
    """Match a variable, with this name if given."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """Match a constant."""
    return ConstantPattern()


def is_tuple(fields: Sequence[DFPattern] | None = None) -> TuplePattern:
    """Match a tuple, with these fields if given."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Match a tuple access, with this index if given."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """Match an If."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """Match a let binding."""
    return LetPattern(var, value, body)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match a pattern with these attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def has_type(ttype: Any, pattern: DFPattern | None = None) -> TypePattern:
    """Match a pattern with exactly this type."""
    return (pattern or wildcard()).has_type(ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Match a pattern with this dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Match a pattern with this shape."""
    return (pattern or wildcard()).has_shape(shape)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """Match a child whose inputs all derive from the parent through nodes that match the path."""
    return DominatorPattern(parent, path, child)


__all__ = [
    "AltPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DataTypePattern",
    "DominatorPattern",
    "ExprPattern",
    "FunctionPattern",
    "IfPattern",
    "LetPattern",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "VarPattern",
    "WildcardPattern",
    "dominates",
    "has_attr",
    "has_dtype",
    "has_shape",
    "has_type",
    "is_constant",
    "is_expr",
    "is_if",
    "is_let",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "wildcard",
]
