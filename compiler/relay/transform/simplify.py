"""Passes that replace single operators: SimplifyExpr, FastMath, CanonicalizeOps, DivToMul,
DynamicToStatic, EliminateCommonSubexpr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import dialect
from ..nest import handle, operands, rewrite
from ..op import registry
from ..op.transform import collapse_sum_to
from .base import body_wise
from .build import again, array, constant, dtype, is_op, op, shape
from .constants import folded_constants
from .rearrange import relaid, transposed

_ALIKE: dict[str, Callable[[relax.Call], relax.Expr | None]] = {
    "zeros_like": lambda new: _filled(new, 0),
    "ones_like": lambda new: _filled(new, 1),
    "full_like": lambda new: _full_like(new),
    "cast_like": lambda new: op("cast", new.args[0], dtype=dtype(new.args[1])),
    "reshape_like": lambda new: _to_shape("reshape", "newshape", new),
    "broadcast_to_like": lambda new: _to_shape("broadcast_to", "shape", new),
    "collapse_sum_like": lambda new: _summed_to_shape(new),
}
_MONOTONIC_READERS = ("argmax", "argmin", "argsort")
_ELEMENTWISE = ("add", "subtract", "multiply", "divide")
_SWEEPS = 20


def FastMath() -> Any:
    """Operators whose records name a fast approximation by it: exp, erf, tanh and softmax."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        fast = registry.lookup(dialect.relay_name(new)).fast if dialect.is_relay(new) else ""
        return op(fast, *new.args, **dialect.attributes(new)) if fast else new

    return _each("FastMath", 4, change)


def CanonicalizeOps() -> Any:
    """bias_add as expand_dims and add."""
    return body_wise("CanonicalizeOps", 3, canonical)


def canonical(body: relax.Expr) -> relax.Expr:
    """A body without bias_add."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(new, "nn.bias_add"):
            return new
        data, bias = new.args
        after = data.ty.ndim - 1 - int(new.attrs["axis"]) % data.ty.ndim
        if after:
            bias = op("expand_dims", bias, axis=1, num_newaxis=after)
        return op("add", data, bias)

    return rewrite(body, change)


def DivToMul() -> Any:
    """Division by a constant as multiplication by its reciprocal, for real numbers."""
    return body_wise("DivToMul", 0, without_division)


def without_division(body: relax.Expr) -> relax.Expr:
    """A body with products in place of quotients by real constants."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(new, "divide"):
            return new
        divisor = array(new.args[1])
        if divisor is None or divisor.dtype.kind != "f" or not divisor.all():
            return new
        return op("multiply", new.args[0], constant(1 / divisor, str(divisor.dtype)))

    return rewrite(body, change)


def DynamicToStatic() -> Any:
    """`dyn.*` whose shapes turn out to be constants as the operators with attributes."""

    def change(body: relax.Expr) -> relax.Expr:
        for _ in range(_SWEEPS):
            new = rewrite(folded_constants(body), lambda _old, each: _static(each))
            if new.same_as(body):
                break
            body = new
        return body

    return body_wise("DynamicToStatic", 2, change)


def _static(call: relax.Expr) -> relax.Expr:
    name = dialect.relay_name(call) if isinstance(call, relax.Call) else ""
    if not name.startswith("dyn."):
        return call
    dynamic, static = registry.lookup(name), registry.lookup(name[4:])
    attrs = {k: v for k, v in dialect.attributes(call).items() if k in static.attributes}
    left = []
    for operand, value in zip(dynamic.operands, call.args):
        if operand in static.operands:
            left.append(value)
            continue
        values = array(value)
        if values is None:
            return call
        key = next((old for old, new in static.renamed.items() if new == operand), operand)
        attrs[key] = values.astype("int64").tolist() if key == "size" else values.tolist()
        if name == "dyn.nn.pad" and key == "pad_width":
            attrs[key] = values.reshape(-1, 2).tolist()
    return op(name[4:], *left, **attrs)


def EliminateCommonSubexpr(fskip: Callable[[relax.Expr], bool] | None = None) -> Any:
    """Equal calls and fields become one.

    Parameters
    ----------
    fskip : callable, optional
        Expressions for which it is true stay as they are.
    """

    def change(body: relax.Expr) -> relax.Expr:
        known: dict[Any, relax.Expr] = {}

        def same(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
            key = _key(new)
            if key is None or (fskip is not None and fskip(new)):
                return new
            return known.setdefault(key, new)

        return rewrite(body, same)

    return body_wise("EliminateCommonSubexpr", 3, change)


def _key(expr: relax.Expr) -> Any:
    """Equal for expressions that compute the same from the same operands; None for no such."""
    below = tuple(_identity(each) for each in operands(expr))
    if isinstance(expr, relax.TupleGetItem):
        return "field", int(expr.index), below
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        if str(expr.op.name).startswith(("random.", "annotation.")):
            return None
        return str(expr.op.name), str(expr.attrs), below, len(expr.args)
    return None


def _identity(expr: relax.Expr) -> Any:
    """A node itself; scalars are the same if they are equal, tuples if their fields are."""
    if isinstance(expr, relax.Tuple):
        return tuple(map(_identity, expr.fields))
    value = array(expr)
    if value is None or value.ndim:
        return handle(expr)
    return str(value.dtype), value.tobytes()


def SimplifyExpr() -> Any:
    """Operators that do nothing, or that a cheaper one replaces.

    `*_like` by what is known of the shape; adding 0, multiplying by 1; reshape of reshape;
    transpose of transpose, and one that moves nothing; casts to the type a value has; clip to the
    whole range of a type; x + x; 1 / sqrt(x); dequantize before argmax, argmin, argsort.
    """

    def change(body: relax.Expr) -> relax.Expr:
        for _ in range(_SWEEPS):
            new = rewrite(body, lambda _old, each: _simpler(each))
            if new.same_as(body):
                break
            body = new
        return body

    return body_wise("SimplifyExpr", 0, change)


def _simpler(expr: relax.Expr) -> relax.Expr:
    name = dialect.relay_name(expr) if isinstance(expr, relax.Call) else ""
    if not name:
        return expr
    rule = _RULES.get(name)
    made = None if rule is None else rule(expr)
    if made is None and name in _ELEMENTWISE:
        made = _with_scalar(expr)
    return expr if made is None else made


def _with_scalar(call: relax.Call) -> relax.Expr | None:
    """One number in place of an operand that is full of it and has the shape of the other."""
    left, right = call.args
    if shape(left) is None or shape(left) != shape(right):
        return None
    for place, operand in enumerate(call.args):
        value = _filling(operand)
        if value is not None:
            scalar = constant(value, dtype(operand))
            return op(
                dialect.relay_name(call), *((scalar, right) if place == 0 else (left, scalar))
            )
    return None


def _filling(expr: relax.Expr) -> Any:
    """The number that fills a tensor made of one; None for any other expression."""
    if is_op(expr, "zeros", "ones"):
        return 1 if is_op(expr, "ones") else 0
    value = array(expr.args[0]) if is_op(expr, "full") else None
    return value.item() if value is not None and value.size == 1 else None


def _filled(call: relax.Call, value: int) -> relax.Expr | None:
    wanted = shape(call.args[0])
    if wanted is None:
        return None
    return op("zeros" if value == 0 else "ones", shape=wanted, dtype=dtype(call.args[0]))


def _full_like(call: relax.Call) -> relax.Expr | None:
    wanted = shape(call.args[0])
    if wanted is None:
        return None
    return op("full", call.args[1], shape=wanted, dtype=dtype(call.args[0]))


def _to_shape(name: str, attribute: str, call: relax.Call) -> relax.Expr | None:
    wanted = shape(call)
    return None if wanted is None else op(name, call.args[0], **{attribute: wanted})


def _summed_to_shape(call: relax.Call) -> relax.Expr | None:
    wanted = shape(call)
    return None if wanted is None else collapse_sum_to(call.args[0], wanted)


def _is_all(expr: relax.Expr, value: int) -> bool:
    found = array(expr)
    if found is not None:
        return bool(found.size) and bool((found == value).all())
    return _filling(expr) == value


def _unchanged(call: relax.Call, kept: relax.Expr) -> relax.Expr | None:
    """An operand, if it has the type of the call's result."""
    same = shape(kept) is not None and shape(kept) == shape(call)
    return kept if same and dtype(kept) == dtype(call) else None


def _add(call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    for value, other in ((left, right), (right, left)):
        if _is_all(other, 0):
            return _unchanged(call, value)
    if left.same_as(right):
        return op("multiply", left, constant(2, dtype(left)))
    return _together(call, np.add)


def _subtract(call: relax.Call) -> relax.Expr | None:
    return _unchanged(call, call.args[0]) if _is_all(call.args[1], 0) else None


def _multiply(call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    for value, other in ((left, right), (right, left)):
        if _is_all(other, 1):
            return _unchanged(call, value)
    return _together(call, np.multiply)


def _together(call: relax.Call, function: Any) -> relax.Expr | None:
    """(x + c1) + c2 as x + (c1 + c2), for scalars."""
    inner, outer = call.args
    name, second = dialect.relay_name(call), array(outer)
    if second is None or second.shape != () or not is_op(inner, name):
        return None
    first = array(inner.args[1])
    if first is None or first.shape != ():
        return None
    return op(name, inner.args[0], constant(function(first, second), dtype(outer)))


def _divide(call: relax.Call) -> relax.Expr | None:
    if _is_all(call.args[1], 1):
        return _unchanged(call, call.args[0])
    if _is_all(call.args[0], 1) and is_op(call.args[1], "sqrt"):
        return _unchanged(call, op("rsqrt", call.args[1].args[0]))
    return None


def _reshape(call: relax.Call) -> relax.Expr | None:
    data, wanted = call.args[0], shape(call)
    if wanted is None:
        return None
    if _unchanged(call, data) is not None:
        return data
    if is_op(data, "reshape", "contrib_reverse_reshape"):
        return op("reshape", data.args[0], newshape=wanted)
    return None


def _cast(call: relax.Call) -> relax.Expr | None:
    data = call.args[0]
    if dtype(data) == dtype(call):
        return data
    if is_op(data, "cast") and _holds_all(dtype(data), dtype(data.args[0])):
        return op("cast", data.args[0], dtype=dtype(call))
    return None


def _holds_all(wide: str, narrow: str) -> bool:
    """Whether a dtype of the same kind has at least as many bits."""
    kind = wide.rstrip("0123456789")
    sizes = [each[len(kind) :] for each in (wide, narrow)]
    same = kind == narrow.rstrip("0123456789") and all(each.isdigit() for each in sizes)
    return same and int(sizes[0]) >= int(sizes[1])


def _clip(call: relax.Call) -> relax.Expr | None:
    name = dtype(call)
    if not name.startswith(("int", "uint")):
        return None
    info = np.iinfo(name)
    whole = float(call.attrs["a_min"]) <= info.min and float(call.attrs["a_max"]) >= info.max
    return call.args[0] if whole else None


def _of_quantized(call: relax.Call) -> relax.Expr | None:
    inner = call.args[0]
    if not is_op(inner, "qnn.dequantize") or array(inner.args[1]) is None:
        return None
    scale = array(inner.args[1])
    assert scale is not None
    return again(call, [inner.args[0]]) if scale.size == 1 and float(scale.ravel()[0]) > 0 else None


_RULES: dict[str, Callable[[relax.Call], relax.Expr | None]] = {
    **_ALIKE,
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "reshape": _reshape,
    "contrib_reverse_reshape": _reshape,
    "transpose": transposed,
    "layout_transform": relaid,
    "cast": _cast,
    "clip": _clip,
    **dict.fromkeys(_MONOTONIC_READERS, _of_quantized),
}


def _each(name: str, level: int, change: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Any:
    return body_wise(name, level, lambda body: rewrite(body, change))


__all__ = [
    "CanonicalizeOps",
    "DivToMul",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "FastMath",
    "SimplifyExpr",
]
