"""Patterns over nested Relay expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import dialect


class DFPattern:
    """Base of all patterns. A pattern object that occurs twice matches the same expression."""

    def __call__(self, *args: DFPattern) -> CallPattern:
        parts = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        return CallPattern(self, list(parts))

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
        """This pattern, where the call, function or operator has these attributes."""
        return AttrPattern(self, dict(attrs))

    def has_type(self, ttype: Any) -> TypePattern:
        """This pattern, of exactly that type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """This pattern, of that data type."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """This pattern, of that shape."""
        return ShapePattern(self, list(shape))

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """This pattern, or what the function makes of it."""
        return self | option_constructor(self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This pattern as the child of a dominator pattern."""
        return DominatorPattern(parent, path or wildcard(), self)

    def match(self, expr: Any) -> bool:
        """Whether an expression matches, at its root."""
        from .matching import match

        return match(self, expr) is not None

    def partition(
        self,
        expr: Any,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[Any], bool] = lambda _: True,
    ) -> Any:
        """The expression with every match put into a function of its own.

        Parameters
        ----------
        attrs : dict, optional
            Attributes of those functions, besides `PartitionedFromPattern`.
        check : callable
            Gets the root of a match; False leaves it as it is.
        """
        from .partition import partition

        return partition(self, expr, attrs, check)

    def children(self) -> list[DFPattern]:
        """The patterns that this one is made of, in the order of the expression's operands."""
        return []

    def redirect_to(self, pattern: DFPattern) -> None:
        raise NotImplementedError("only a wildcard can be redirected")


class ExprPattern(DFPattern):
    """One expression: an operator, by its name, or that very node."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr


class VarPattern(DFPattern):
    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint


class ConstantPattern(DFPattern):
    pass


class WildcardPattern(DFPattern):
    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Stand for another pattern from now on, which may contain this one."""
        self.pattern = pattern


class CallPattern(DFPattern):
    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op = op
        self.args = None if args is None else list(args)

    def children(self) -> list[DFPattern]:
        return [self.op, *(self.args or [])]


class FunctionPattern(DFPattern):
    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params = None if params is None else list(params)
        self.body = body

    def children(self) -> list[DFPattern]:
        return [*(self.params or []), self.body]


class TuplePattern(DFPattern):
    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = None if fields is None else list(fields)

    def children(self) -> list[DFPattern]:
        return list(self.fields or [])


class TupleGetItemPattern(DFPattern):
    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple = tuple_value
        self.index = index

    def children(self) -> list[DFPattern]:
        return [self.tuple]


class IfPattern(DFPattern):
    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond = cond
        self.true_branch = true_branch
        self.false_branch = false_branch

    def children(self) -> list[DFPattern]:
        return [self.cond, self.true_branch, self.false_branch]


class LetPattern(DFPattern):
    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.var = var
        self.value = value
        self.body = body

    def children(self) -> list[DFPattern]:
        return [self.var, self.value, self.body]


class AltPattern(DFPattern):
    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left = left
        self.right = right

    def children(self) -> list[DFPattern]:
        return [self.left, self.right]


class AttrPattern(DFPattern):
    def __init__(self, pattern: DFPattern, attrs: dict[str, Any]) -> None:
        self.pattern = pattern
        self.attrs = attrs

    def children(self) -> list[DFPattern]:
        return [self.pattern]


class TypePattern(DFPattern):
    def __init__(self, pattern: DFPattern, ty: Any) -> None:
        self.pattern = pattern
        self.type = ty

    def children(self) -> list[DFPattern]:
        return [self.pattern]


class DataTypePattern(DFPattern):
    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        self.pattern = pattern
        self.dtype = str(dtype)

    def children(self) -> list[DFPattern]:
        return [self.pattern]


class ShapePattern(DFPattern):
    def __init__(self, pattern: DFPattern, shape: list[Any]) -> None:
        self.pattern = pattern
        self.shape = shape

    def children(self) -> list[DFPattern]:
        return [self.pattern]


class DominatorPattern(DFPattern):
    """A child whose inputs all come, through the path, from one parent."""

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent = parent
        self.path = path
        self.child = child

    def children(self) -> list[DFPattern]:
        return [self.parent, self.path, self.child]


def is_op(op_name: str) -> ExprPattern:
    """The Relay operator of that name, to be called with patterns of its operands."""
    return ExprPattern(dialect.operator(op_name))


def is_expr(expr: Any) -> ExprPattern:
    """That very expression."""
    return ExprPattern(expr)


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def is_var(name: str = "") -> VarPattern:
    """A variable; of that name, if one is given."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_tuple(fields: Sequence[DFPattern] | None = None) -> TuplePattern:
    """A tuple; of these fields, if they are given."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """A field of a tuple; that one, if an index is given."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """A condition."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """A variable that is bound to a value in a body."""
    return LetPattern(var, value, body)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """A pattern with these attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def has_type(ttype: Any, pattern: DFPattern | None = None) -> TypePattern:
    """A pattern of exactly that type."""
    return (pattern or wildcard()).has_type(ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """A pattern of that data type."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """A pattern of that shape."""
    return (pattern or wildcard()).has_shape(shape)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """A child all of whose inputs come from the parent through nodes that match the path."""
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
