"""FoldConstant: evaluate constant subexpressions, with numpy where possible."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import BatonError
from ...ir.fold_constants import value_of
from .. import dialect
from ..expr import const
from ..nested_expressions import handle, nested, operands, post_order, rewrite
from ..relay_to_relax import function_of
from ..type_infer import infer_type
from .base import body_wise
from .build import constant, dtype, is_op, shape, tuple_of

_NEVER_FOLDED = ("annotation.", "random.", "on_device", "nn.dropout")


def FoldConstant(fold_qnn: bool = False) -> Any:
    """Fold every constant subexpression; with `fold_qnn`, of quantized operators too.

    Numpy evaluates calls that fold to constants in Relax operators. All others need kernels and are
    compiled in one program.
    """
    return body_wise("FoldConstant", 2, lambda body: folded_constants(body, fold_qnn))


def FoldConstantExpr(expr: relax.Expr, mod: tvm.IRModule, fold_qnn: bool = False) -> relax.Expr:
    """`FoldConstant` on one expression."""
    del mod
    if isinstance(expr, relax.Function):
        return function_of(expr.params, folded_constants(nested(expr), fold_qnn), expr.attrs)
    return folded_constants(expr, fold_qnn)


def folded_constants(body: relax.Expr, fold_qnn: bool = False) -> relax.Expr:
    """Fold the maximal constant subexpressions of a body."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        known = _known_of_type(new)
        if known is None and _is_foldable(new, fold_qnn) and all(map(_is_known, new.args)):
            known = value_of(dialect.expand(new))
        return new if known is None else infer_type(known)

    made = rewrite(body, change)
    left = _closed_calls(made, fold_qnn)
    return _with_values(made, left, _compiled(left)) if left else made


def _is_foldable(node: relax.Expr, fold_qnn: bool) -> bool:
    name = dialect.relay_name(node) if isinstance(node, relax.Call) else ""
    return (
        name != ""
        and not name.startswith(_NEVER_FOLDED)
        and (fold_qnn or not name.startswith("qnn."))
    )


def _is_known(expr: relax.Expr) -> bool:
    if isinstance(expr, relax.Tuple):
        return all(map(_is_known, expr.fields))
    return isinstance(expr, tvm.ir.GenericConst)


def _known_of_type(call: relax.Expr) -> relax.Expr | None:
    """Result of shape_of or ndarray_size if the operand's type has a static shape."""
    if not is_op(call, "shape_of", "vm.shape_of", "ndarray_size"):
        return None
    extents = shape(call.args[0])
    if extents is None:
        return None
    value = np.prod(extents, dtype="int64") if is_op(call, "ndarray_size") else np.array(extents)
    return constant(value, dtype(call))


def _closed_calls(body: relax.Expr, fold_qnn: bool) -> list[relax.Expr]:
    """Maximal constant calls: calls on constants whose consumers are not constant."""
    closed: dict[int, bool] = {}
    found: dict[int, relax.Expr] = {}
    for node in post_order(body):
        below = operands(node)
        own = isinstance(node, (relax.Tuple, relax.TupleGetItem)) or _is_foldable(node, fold_qnn)
        whole = own and all(closed[handle(each)] for each in below)
        closed[handle(node)] = whole or isinstance(node, tvm.ir.GenericConst)
        if not closed[handle(node)]:
            found |= {handle(each): each for each in below if closed[handle(each)]}
    if closed[handle(body)]:
        found[handle(body)] = body
    return [each for each in found.values() if not _is_known(each)]


def _compiled(calls: list[relax.Expr]) -> list[relax.Expr]:
    """Evaluate calls by one compiled program; return them unchanged if that fails."""
    from ..executor import create_executor

    def values_of_calls() -> Any:
        with tvm.transform.PassContext():  # hide the internal build from the caller's instruments
            return create_executor("graph").evaluate(tuple_of(calls))

    try:
        # Dispatch contexts of the caller apply only to the caller's kernels.
        return [_constant(value) for value in Context().run(values_of_calls)]
    except BatonError:
        return calls


def _constant(value: Any) -> relax.Expr:
    if isinstance(value, list):
        return tuple_of([_constant(each) for each in value])
    return const(value, str(value.dtype))


def _with_values(body: relax.Expr, old: list[relax.Expr], new: list[relax.Expr]) -> relax.Expr:
    values = {handle(call): value for call, value in zip(old, new)}
    return rewrite(body, lambda call, made: values.get(handle(call), made))
