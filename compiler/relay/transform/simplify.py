"""Passes that rewrite single operators: SimplifyExpr, FastMath, CanonicalizeOps, DivToMul,
DynamicToStatic, EliminateCommonSubexpr.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...ir.simplify import Simplify
from .. import dialect
from ..nested_expressions import handle, operands, rewrite
from ..op import registry
from ..op.transform import collapse_sum_to
from .base import body_wise, rule_wise
from .build import again, array, constant, dtype, is_op, op, shape
from .constants import folded_constants

_ALIKE: dict[str, Callable[[relax.Call, list[int]], relax.Expr]] = {
    "zeros_like": lambda new, wanted: op("zeros", shape=wanted, dtype=dtype(new.args[0])),
    "ones_like": lambda new, wanted: op("ones", shape=wanted, dtype=dtype(new.args[0])),
    "full_like": lambda new, wanted: op(
        "full", new.args[1], shape=wanted, dtype=dtype(new.args[0])
    ),
    "reshape_like": lambda new, wanted: op("reshape", new.args[0], newshape=wanted),
    "broadcast_to_like": lambda new, wanted: op("broadcast_to", new.args[0], shape=wanted),
    "collapse_sum_like": lambda new, wanted: collapse_sum_to(new.args[0], wanted),
}
"""Operators that take a shape from an operand, for a result of this static shape."""

_MONOTONIC_READERS = ("argmax", "argmin", "argsort")
_ELEMENTWISE = ("add", "subtract", "multiply", "divide")
_SWEEPS = 20


def FastMath() -> Any:
    """Replace operators with their registered fast approximations: exp, erf, tanh and softmax."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        fast = registry.lookup(dialect.relay_name(new)).fast if dialect.is_relay(new) else ""
        return op(fast, *new.args, **dialect.attributes(new)) if fast else new

    return body_wise("FastMath", 4, lambda body: rewrite(body, change))


def CanonicalizeOps() -> Any:
    """Replace bias_add with expand_dims and add."""
    return body_wise("CanonicalizeOps", 3, canonical)


def canonical(body: relax.Expr) -> relax.Expr:
    """Rewrite a body without bias_add."""

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
    """Replace floating-point division by a constant with multiplication by its reciprocal."""
    return body_wise("DivToMul", 0, without_division)


def without_division(body: relax.Expr) -> relax.Expr:
    """Rewrite a body without divisions by floating-point constants."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not is_op(new, "divide"):
            return new
        divisor = array(new.args[1])
        if divisor is None or divisor.dtype.kind != "f" or not divisor.all():
            return new
        return op("multiply", new.args[0], constant(1 / divisor, str(divisor.dtype)))

    return rewrite(body, change)


def DynamicToStatic() -> Any:
    """Replace `dyn.*` operators with constant shape operands with their static forms."""

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
    """Merge equal calls and tuple accesses. `fskip`: predicate of expressions to keep."""

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
    """Key of equal computations on equal operands; None if the expression cannot be merged."""
    below = tuple(_identity(each) for each in operands(expr))
    if isinstance(expr, relax.TupleGetItem):
        return "field", int(expr.index), below
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        if str(expr.op.name).startswith(("random.", "annotation.")):
            return None
        return str(expr.op.name), str(expr.attrs), below, len(expr.args)
    return None


def _identity(expr: relax.Expr) -> Any:
    """Identity of a node; scalar constants are compared by value, tuples by their fields."""
    if isinstance(expr, relax.Tuple):
        return tuple(map(_identity, expr.fields))
    value = array(expr)
    if value is None or value.ndim:
        return handle(expr)
    return str(value.dtype), value.tobytes()


def SimplifyExpr() -> Any:
    """Remove no-op operators and replace others by cheaper ones.

    `*_like` with a static shape; add 0, multiply by 1; reshape of reshape; transpose of
    transpose and identity transpose; casts to the same dtype; clip to the full range of a dtype;
    x + x; 1 / sqrt(x); dequantize before argmax, argmin, argsort.
    """
    return rule_wise("SimplifyExpr", 0, _Simplify, _SWEEPS)


class _Simplify(Simplify):
    reshapes = kept = frozenset(["reshape", "contrib_reverse_reshape"])

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name == "cast_like":
            return op("cast", call.args[0], dtype=dtype(call.args[1]))
        if name in _ALIKE:
            wanted = shape(call)
            return None if wanted is None else _ALIKE[name](call, wanted)
        rule = _RULES.get(name)
        made = None if rule is None else rule(self, call)
        return self._with_scalar(call, name) if made is None and name in _ELEMENTWISE else made

    def number(self, expr: Any) -> float | None:
        found = super().number(expr)
        return self._filling(expr) if found is None else found

    def _filling(self, expr: Any) -> Any:
        """Scalar that fills a constant-filled tensor; None for other expressions."""
        value = self.scope.definition(expr)
        if is_op(value, "zeros", "ones"):
            return int(is_op(value, "ones"))
        filling = array(value.args[0]) if is_op(value, "full") else None
        return filling.item() if filling is not None and filling.size == 1 else None

    def _with_scalar(self, call: relax.Call, name: str) -> relax.Expr | None:
        """Replace a constant-filled operand of the other operand's shape with a scalar."""
        left, right = call.args
        if shape(left) is None or shape(left) != shape(right):
            return None
        for place, operand in enumerate(call.args):
            value = self._filling(operand)
            if value is not None:
                scalar = constant(value, dtype(operand))
                return op(name, *((scalar, right) if place == 0 else (left, scalar)))
        return None

    def add(self, call: relax.Call) -> relax.Expr | None:
        left, right = call.args
        found = super().add(call)
        if found is None and left.same_as(right):
            return op("multiply", left, constant(2, dtype(left)))
        return found

    def transpose(self, call: relax.Call) -> relax.Expr | None:
        return transposed(call, self.scope.definition(call.args[0]))

    def layout_transform(self, call: relax.Call) -> relax.Expr | None:
        return relaid(call, self.scope.definition(call.args[0]))

    def cast(self, call: relax.Call) -> relax.Expr | None:
        data = call.args[0]
        if dtype(data) == dtype(call):
            return data
        inner = self.scope.match_call(data, "cast")
        if inner is not None and _holds_all(dtype(data), dtype(inner.args[0])):
            return op("cast", inner.args[0], dtype=dtype(call))
        return None

    def clip(self, call: relax.Call) -> relax.Expr | None:
        name = dtype(call)
        if not name.startswith(("int", "uint")):
            return None
        info = np.iinfo(name)
        whole = float(call.attrs["a_min"]) <= info.min and float(call.attrs["a_max"]) >= info.max
        return call.args[0] if whole else None

    def of_quantized(self, call: relax.Call) -> relax.Expr | None:
        inner = self.scope.match_call(call.args[0], "qnn.dequantize")
        scale = None if inner is None else array(inner.args[1])
        if inner is None or scale is None or scale.size != 1 or float(scale.ravel()[0]) <= 0:
            return None
        return again(call, [inner.args[0]])


def _holds_all(wide: str, narrow: str) -> bool:
    """Whether a dtype of the same kind has at least as many bits."""
    kind = wide.rstrip("0123456789")
    sizes = [each[len(kind) :] for each in (wide, narrow)]
    same = kind == narrow.rstrip("0123456789") and all(each.isdigit() for each in sizes)
    return same and int(sizes[0]) >= int(sizes[1])


_RULES: dict[str, Callable[[_Simplify, relax.Call], relax.Expr | None]] = {
    **dict.fromkeys(_Simplify.reshapes, _Simplify.reshape),
    **dict.fromkeys(_MONOTONIC_READERS, _Simplify.of_quantized),
    "add": _Simplify.add,
    "cast": _Simplify.cast,
    "clip": _Simplify.clip,
    "divide": _Simplify.divide,
    "layout_transform": _Simplify.layout_transform,
    "multiply": _Simplify.multiply,
    "subtract": _Simplify.subtract,
    "transpose": _Simplify.transpose,
}


def axes_of(call: relax.Call) -> list[int]:
    """Permutation of a transpose; by default it reverses the axes."""
    rank = call.ty.ndim
    axes = dialect.attributes(call)["axes"] or range(rank)[::-1]
    return [axis % rank for axis in axes]


def transposed(call: relax.Call, data: relax.Expr) -> relax.Expr | None:
    """Simplify this transpose of `data`."""
    axes = axes_of(call)
    if axes == sorted(axes):
        return call.args[0]
    if is_op(data, "transpose"):
        before = axes_of(data)
        return _transpose(data.args[0], [before[axis] for axis in axes])
    if is_op(data, "layout_transform"):
        source, target = _layouts(data)
        if len(source) == len(axes) and source.isalpha() and sorted(source) == sorted(target):
            before = [source.index(axis) for axis in target]
            return _transpose(data.args[0], [before[axis] for axis in axes])
        if len(target) == len(axes) and target.isalpha():
            return _relaid(data.args[0], source, "".join(target[axis] for axis in axes))
    return None


def relaid(call: relax.Call, data: relax.Expr) -> relax.Expr | None:
    """Simplify this layout_transform of `data`."""
    source, target = _layouts(call)
    if source == target:
        return call.args[0]
    if is_op(data, "layout_transform"):
        first, between = _layouts(data)
        return _relaid(data.args[0], first, target) if between == source else None
    if is_op(data, "transpose") and source.isalpha():
        axes = axes_of(data)
        first = "".join(source[axes.index(axis)] for axis in range(len(axes)))
        return _relaid(data.args[0], first, target)
    return None


def _layouts(call: relax.Call) -> tuple[str, str]:
    return str(call.attrs["src_layout"]), str(call.attrs["dst_layout"])


def _transpose(data: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    return data if list(axes) == sorted(axes) else op("transpose", data, axes=list(axes))


def _relaid(data: relax.Expr, source: str, target: str) -> relax.Expr | None:
    """Permutation between two layouts if no axis is split; None if the axes differ."""
    if source == target:
        return data
    if sorted(set(re.findall("[A-Z]", source))) != sorted(set(re.findall("[A-Z]", target))):
        return None
    if source.isalpha() and sorted(source) == sorted(target):
        return _transpose(data, [source.index(axis) for axis in target])
    return op("layout_transform", data, src_layout=source, dst_layout=target)
