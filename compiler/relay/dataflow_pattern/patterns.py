"""Patterns over nested Relay expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tvm
import tvm_ffi
from tvm import relax

from .. import dialect
from ..expr import value_of
from ..function import OpenFunction
from ..nested_expressions import nested
from .matching import Matcher, dominated, has_attributes, has_shape_of, match, same
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

    def parts(self) -> list[DFPattern]:
        """Sub-patterns in operand order of the expression, or the target of a wildcard."""
        held = (each if isinstance(each, list) else [each] for each in vars(self).values())
        return [part for parts in held for part in parts if isinstance(part, DFPattern)]

    def repeated(self) -> list[DFPattern]:
        """Sub-patterns that match any number of nodes, none of which is an input of the match."""
        return []

    def entering(self, found: Sequence[Any]) -> list[Any]:
        """Inputs of a match contributed by the expressions that this pattern matched."""
        return [] if self.parts() else list(found)

    def redirect_to(self, pattern: DFPattern) -> None:
        raise NotImplementedError("only a wildcard can be redirected")

    def __repr__(self) -> str:
        """Write the pattern as a tree; a repeated or recursive pattern is written once."""
        return _text(self, {})


def _text(value: Any, numbers: dict[DFPattern, int]) -> str:
    """Write a pattern as `CallPattern#0(...)`, and as `#0` where it occurs again."""
    if isinstance(value, list):
        return f"[{', '.join(_text(each, numbers) for each in value)}]"
    if not isinstance(value, DFPattern):
        return repr(value)
    if value in numbers:
        return f"#{numbers[value]}"
    number = numbers[value] = len(numbers)
    held = ", ".join(_text(each, numbers) for each in vars(value).values() if each is not None)
    return f"{type(value).__name__}#{number}({held})"


@dataclass(eq=False, repr=False)
class ExprPattern(DFPattern):
    """Matches one expression: an operator by name, or a specific node."""

    expr: Any
    embeds = True

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return same(self.expr, expr)


class VarPattern(DFPattern):
    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, relax.Var) and self.name in ("", str(expr.name))


class ConstantPattern(DFPattern):
    """Matches a constant."""

    embeds = True

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, tvm.ir.GenericConst)


class WildcardPattern(DFPattern):
    """Matches any expression."""

    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Match another pattern from now on, which may contain this one (recursion)."""
        self.pattern = pattern

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return self.pattern is None or matcher.match(self.pattern, expr)


class CallPattern(DFPattern):
    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op = op
        self.args = None if args is None else list(args)

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
        """Equivalent patterns in the expression's order: (a * b) / c, a * (b / c), (a / c) * b."""
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

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        if not isinstance(expr, (relax.Function, OpenFunction)):
            return False
        if self.params is not None and not matcher.match_all(self.params, list(expr.params)):
            return False
        body = nested(expr) if isinstance(expr, relax.Function) else expr.body
        return matcher.match(self.body, body)


class TuplePattern(DFPattern):
    """Matches a tuple, with these fields if given."""

    def __init__(self, fields: Sequence[DFPattern] | None = None) -> None:
        self.fields = None if fields is None else list(fields)

    def entering(self, found: Sequence[Any]) -> list[Any]:
        if self.fields is None:
            return [each for whole in found for each in whole.fields]
        return super().entering(found)

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, relax.Tuple) and (
            self.fields is None or matcher.match_all(self.fields, list(expr.fields))
        )


@dataclass(eq=False, repr=False)
class TupleGetItemPattern(DFPattern):
    """Matches a tuple access, with this index if given."""

    tuple_value: DFPattern
    index: int | None = None
    tuple: ClassVar[property] = property(lambda self: self.tuple_value)  # Relay's name

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return (
            isinstance(expr, relax.TupleGetItem)
            and self.index in (None, -1, int(expr.index))
            and matcher.match(self.tuple_value, expr.tuple_value)
        )


@dataclass(eq=False, repr=False)
class IfPattern(DFPattern):
    """Matches an If."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return isinstance(expr, relax.If) and matcher.match_all(
            self.parts(), [expr.cond, value_of(expr.true_branch), value_of(expr.false_branch)]
        )


@dataclass(eq=False, repr=False)
class LetPattern(DFPattern):
    """Matches a let binding."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        if not isinstance(expr, relax.SeqExpr):
            return False
        bindings = [binding for block in expr.blocks for binding in block.bindings]
        if not bindings or not isinstance(bindings[0], relax.VarBinding):
            return False
        first, rest = bindings[0], bindings[1:]
        body = expr.body if not rest else relax.SeqExpr([relax.BindingBlock(rest)], expr.body)
        return matcher.match_all(self.parts(), [first.var, first.value, body])


@dataclass(eq=False, repr=False)
class AltPattern(DFPattern):
    left: DFPattern
    right: DFPattern

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.left, expr) or matcher.match(self.right, expr)


@dataclass(eq=False, repr=False)
class _Refined(DFPattern):
    """Matches an expression that matches a pattern and for which `holds`."""

    pattern: DFPattern
    wanted: Any

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.pattern, expr) and self.holds(expr)

    def holds(self, expr: Any) -> bool:
        raise NotImplementedError


_WANTED = property(lambda self: self.wanted, doc="Relay's name of `wanted`.")


class AttrPattern(_Refined):
    attrs = _WANTED

    def holds(self, expr: Any) -> bool:
        return has_attributes(expr, self.wanted)


class TypePattern(_Refined):
    type = _WANTED

    def holds(self, expr: Any) -> bool:
        return bool(tvm_ffi.structural_equal(expr.ty, self.wanted, map_free_vars=True))


class DataTypePattern(_Refined):
    dtype = _WANTED

    def holds(self, expr: Any) -> bool:
        return isinstance(expr.ty, relax.TensorType) and str(expr.ty.dtype) == str(self.wanted)


class ShapePattern(_Refined):
    shape = _WANTED

    def holds(self, expr: Any) -> bool:
        return has_shape_of(expr.ty, self.wanted)


@dataclass(eq=False, repr=False)
class DominatorPattern(DFPattern):
    """Matches a child whose inputs all derive from the parent through nodes that match the path."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    def repeated(self) -> list[DFPattern]:
        return [self.parent, self.path]

    def matches(self, matcher: Matcher, expr: Any) -> bool:
        return matcher.match(self.child, expr) and dominated(matcher, self.parent, self.path, expr)


is_expr, wildcard, is_constant = ExprPattern, WildcardPattern, ConstantPattern
is_tuple, is_tuple_get_item = TuplePattern, TupleGetItemPattern
is_if, is_let, dominates = IfPattern, LetPattern, DominatorPattern


def is_op(op_name: str) -> ExprPattern:
    """Match the Relay operator with this name; call it with operand patterns."""
    return ExprPattern(dialect.operator(op_name))


def is_var(name: str = "") -> VarPattern:
    """Match a variable, with this name if given."""
    return VarPattern(name)


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
