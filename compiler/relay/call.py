"""`relay.Call`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from ..ir.spans import with_span
from . import dialect
from .expr import Node, as_expr
from .op import registry
from .type_infer import infer_type_if_possible, is_untyped, set_type


class Call(metaclass=Node):
    """`relay.Call(op, args, attrs)`: call of a Relay operator, a function or a global function."""

    node = tvm.ir.Call

    def __new__(
        cls,
        op: Any,
        args: Sequence[Any],
        attrs: Any = None,
        type_args: Sequence[Any] | None = None,
        span: Any = None,
    ) -> Any:
        if isinstance(op, registry.Operator):
            made = registry.call(op.name, args, attrs or {}, type_args or ())
            return made if span is None else with_span(made, span)
        operands = [infer_type_if_possible(as_expr(argument)) for argument in args]
        if hasattr(op, "of") and not op.is_program:  # adopts the types of its arguments
            op = _with_types(op, operands)
        if isinstance(op, tvm.ir.Op) and registry.is_available(str(op.name)):
            made = dialect.call(str(op.name), operands, dialect.attribute_values(attrs))
            return made if span is None else with_span(made, span)
        if isinstance(attrs, Mapping):
            attrs = tvm.ir.make_node("ir.DictAttrs", **attrs)
        if isinstance(op, relax.Function):
            for parameter, operand in zip(op.params, operands):
                if isinstance(operand, relax.Var) and operand.ty.is_missing():
                    set_type(operand, parameter.ty)
        return infer_type_if_possible(relax.Call(op, operands, attrs, span=span))


def _with_types(function: Any, operands: Sequence[relax.Expr]) -> relax.Function:
    """Specialize an open function to its arguments' types; to any type while these have none."""
    if any(is_untyped(operand.ty) for operand in operands):
        return function.untyped()
    return function.of(operands)
