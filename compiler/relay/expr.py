"""Relay expression constructors: typed, nested Relax expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import RelayTypeError
from ..ir.spans import with_span
from ..support.lazy_import import lazy_attributes
from .nested_expressions import is_let
from .nested_expressions import value_of as value_of
from .ty import IncompleteType, TensorType
from .type_infer import infer_type_if_possible, is_untyped, set_type

Expr = RelayExpr = relax.Expr
GlobalVar = tvm.ir.GlobalVar
SequentialSpan = tvm.ir.SequentialSpan
SourceName = tvm.ir.SourceName
Span = tvm.ir.Span


def var(
    name_hint: str,
    type_annotation: Any = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Any = None,
) -> relax.Var:
    """Create a variable.

    Parameters
    ----------
    type_annotation : type or str, optional
        The type; a dtype string means a scalar of this dtype.
    shape : sequence of int or Any, optional
        Shape of a tensor of dtype `dtype`; alternative to a type.

    A variable without type or shape gets its type from the first operator that determines it,
    such as a convolution with `channels` and `kernel_size` for its weight.
    """
    if type_annotation is not None and shape is not None:
        raise RelayTypeError(f"variable {name_hint}: give a type_annotation or a shape, not both")
    if shape is not None:
        type_annotation = TensorType(shape, dtype)
    elif isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    elif isinstance(type_annotation, IncompleteType):
        type_annotation = None
    return relax.Var(name_hint, type_annotation, span)


def const(value: Any, dtype: str | None = None, span: Any = None) -> tvm.ir.GenericConst:
    """Create a constant tensor.

    Python's integers and floats become int32 and float32, as do numpy's int64 and float64 unless
    `dtype` is given. A TVM tensor keeps its dtype.
    """
    if isinstance(value, tvm.ir.GenericConst):
        value = value.value
    if isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, (bool, int, float, list, np.ndarray, np.generic, tvm.runtime.Tensor)):
        raise RelayTypeError(f"a constant can't be made of a {type(value).__name__}")
    made = relax.const(value, dtype)
    return made if span is None else with_span(made, span)


class TupleWrapper:
    """Results of an operator that has several: indexed and unpacked like a Python tuple."""

    def __init__(self, tuple_value: relax.Expr, size: int):
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> relax.Expr:
        """The tuple as one expression."""
        return self.tuple_value

    def astext(self) -> str:
        """Print the tuple's expression as Relay text."""
        return str(self.tuple_value)

    def astype(self, _dtype: str) -> Any:
        """Raise an error: a tuple has no dtype."""
        raise TypeError("astype cannot be used on a tuple")

    def __getitem__(self, index: int) -> relax.Expr:
        if index >= self.size:
            raise IndexError(f"field {index} of a tuple of {self.size} fields")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[relax.Expr]:
        return (self[index] for index in range(self.size))

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value}, {self.size})"


def as_expr(value: Any) -> Any:
    """Unwrap a `TupleWrapper` or the body of a function; return any other value unchanged."""
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, relax.SeqExpr) and not _matches(value):
        return value_of(value)
    return value


def _matches(body: relax.SeqExpr) -> bool:
    """Whether a sequence must be kept because it contains a match_cast or an effectful binding."""
    bindings = [each for block in body.blocks for each in block.bindings]
    return any(isinstance(each, relax.MatchCast) or is_let(each) for each in bindings)


class Node(type):
    """Metaclass of Relay node classes: calls create Relax nodes, isinstance and type find them."""

    node: Any

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.node

    def __hash__(cls) -> int:
        return hash(cls.node)

    def __instancecheck__(cls, instance: Any) -> bool:
        if isinstance(instance, relax.SeqExpr) and cls.node is not relax.SeqExpr:
            instance = value_of(instance)  # unwrap a function body
        return isinstance(instance, cls.node)


class Var(metaclass=Node):
    """`relay.Var(name_hint, type_annotation)`: a variable."""

    node = relax.Var

    def __new__(cls, name_hint: str, type_annotation: Any = None, span: Any = None) -> Any:
        known = None if isinstance(type_annotation, IncompleteType) else type_annotation
        return relax.Var(name_hint, known, span)


class Constant(metaclass=Node):
    """`relay.Constant(data)`: a constant tensor of the dtype of `data`."""

    node = tvm.ir.GenericConst

    def __new__(cls, data: Any, span: Any = None) -> Any:
        array = data if hasattr(data, "dtype") else np.asarray(data)
        return const(array, str(array.dtype), span)


class Tuple(metaclass=Node):
    """`relay.Tuple(fields)`."""

    node = relax.Tuple

    def __new__(cls, fields: Sequence[Any], span: Any = None) -> Any:
        return infer_type_if_possible(
            relax.Tuple([infer_type_if_possible(as_expr(field)) for field in fields], span)
        )


class TupleGetItem(metaclass=Node):
    """`relay.TupleGetItem(tuple_value, index)`."""

    node = relax.TupleGetItem

    def __new__(cls, tuple_value: Any, index: int, span: Any = None) -> Any:
        whole = infer_type_if_possible(as_expr(tuple_value))
        return infer_type_if_possible(relax.TupleGetItem(whole, index, span))


class Let(metaclass=Node):
    """`relay.Let(variable, value, body)`: a Relax sequence of one binding."""

    node = relax.SeqExpr

    def __new__(cls, variable: relax.Var, value: Any, body: Any, span: Any = None) -> Any:
        value = infer_type_if_possible(as_expr(value))
        if variable.ty.is_missing():
            _typed_as(variable, value)
        inner, body = body, infer_type_if_possible(as_expr(body))
        blocks = [relax.BindingBlock([relax.VarBinding(variable, value)], _LET)]
        if is_written_let(inner) and not isinstance(body, relax.SeqExpr):
            blocks += inner.blocks  # substituted in `body`; for analyses of variables
        return _typed_as(relax.SeqExpr(blocks, body, span), body)


_LET = Span(SourceName("relay.Let"), 0, 0, 0, 0)


def is_written_let(expr: Any) -> bool:
    """Whether an expression was made by `relay.Let`, unlike the bindings of a function's body."""
    blocks = expr.blocks if isinstance(expr, relax.SeqExpr) else []
    return bool(blocks) and blocks[0].span is not None and blocks[0].span.same_as(_LET)


class If(metaclass=Node):
    """`relay.If(cond, true_branch, false_branch)`; the condition is a scalar of dtype bool."""

    node = relax.If

    def __new__(cls, cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> Any:
        cond = infer_type_if_possible(as_expr(cond))
        if isinstance(cond, relax.Var) and cond.ty.is_missing():
            set_type(cond, relax.TensorType([], "bool"))  # infer the type of an untyped condition
        is_scalar = isinstance(cond.ty, relax.TensorType) and cond.ty.ndim <= 0
        if not is_scalar and not is_untyped(cond.ty):
            raise RelayTypeError(f"the condition of relay.If must be a scalar, not {cond.ty}")
        branches = [_sequence(as_expr(each)) for each in (true_branch, false_branch)]
        node = relax.If(cond, *branches, span)
        if not any(is_untyped(branch.ty) for branch in branches):
            set_type(node, relax.analysis.type_lca(branches[0].ty, branches[1].ty))
        return node


def _sequence(body: relax.Expr) -> relax.SeqExpr:
    body = infer_type_if_possible(body)
    if isinstance(body, relax.SeqExpr):
        return body
    return _typed_as(relax.SeqExpr([], body), body)


def _typed_as(expr: relax.Expr, value: relax.Expr) -> relax.Expr:
    """Copy the type of `value`, if known, to `expr`."""
    if not value.ty.is_missing():
        set_type(expr, value.ty)
    return expr


# Names from modules that import this one; Relay had them here.
_FIELDS = ("Call", "Constant", "If", "Let", "Tuple", "TupleGetItem", "Var")
__getattr__ = lazy_attributes(
    __package__ or "",
    {
        **{f"{kind}WithFields": ".with_fields" for kind in _FIELDS},
        "Call": ".call",
        "bind": ".function",
    },
)
