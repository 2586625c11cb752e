"""Algebraic simplification: remove no-op calls and merge adjacent ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from .constants import (
    NUMPY_DTYPES,
    array_of,
    constant,
    dtype_of,
    integers,
    scalar_of,
    shape_of_type,
    static_shape,
    view_of,
)
from .op_dialect import SharedRule
from .op_facts import RESHAPE, SCATTER, all_facts, facts_in_relay
from .rewrite import call_pass


class Simplify(SharedRule):
    """Rules that the build and Relay's SimplifyExpr share."""

    reshapes = frozenset(each.name for each in all_facts() if each.kind == RESHAPE)
    """Operators that are dropped before a reshape."""
    kept = frozenset(["reshape"])
    """Reshapes that are not rewritten unless a reshape precedes them."""

    def reshape(self, call: relax.Call) -> relax.Expr | None:
        data, shape = call.args[0], static_shape(call)
        if shape is None:
            return None
        if static_shape(data) == shape:
            return data
        if 0 in shape:  # to Relax's reshape, an extent of 0 is the operand's in the same place
            return None
        source = self.before_reshapes(data)
        if source.same_as(data) and self.name(call) in self.kept:
            return None
        if static_shape(source) == shape:
            return source
        return self.vocabulary.make("reshape", source, newshape=list(shape))

    def before_reshapes(self, data: relax.Expr) -> relax.Expr:
        """The source of a chain of reshapes that ends in `data`."""
        inner = self.scope.definition(data)
        while self.name(inner) in self.reshapes and static_shape(inner.args[0]) is not None:
            data = inner.args[0]
            inner = self.scope.definition(data)
        return data

    def unchanged(self, call: relax.Call) -> relax.Expr | None:
        """The operand, if the call has its shape and dtype: only then it changes nothing."""
        return if_alike(call, call.args[0])

    def add(self, call: relax.Call) -> relax.Expr | None:
        found = self._without(call, 0.0, call.args)
        return self._together(call, "add", np.add) if found is None else found

    def subtract(self, call: relax.Call) -> relax.Expr | None:
        return self._without(call, 0.0, call.args[1:])

    def multiply(self, call: relax.Call) -> relax.Expr | None:
        found = self._without(call, 1.0, call.args)
        return self._together(call, "multiply", np.multiply) if found is None else found

    def divide(self, call: relax.Call) -> relax.Expr | None:
        data, divisor = call.args
        found = self._without(call, 1.0, [divisor])
        root = self.scope.match_call(divisor, "sqrt")
        if found is not None or root is None or self.number(data) != 1.0:
            return found
        is_alike = static_shape(call) == static_shape(root) and dtype_of(call) == dtype_of(root)
        return self.vocabulary.make("rsqrt", root.args[0]) if is_alike else None

    def number(self, expr: Any) -> float | None:
        """The value of all elements of a tensor, if it is known."""
        return scalar_of(expr)

    def _without(self, call: relax.Call, neutral: float, others: Sequence[Any]) -> Any:
        """The other operand, if one of `others` is the neutral element."""
        left, right = call.args
        for other in others:
            if self.number(other) == neutral:
                found = if_alike(call, left if other.same_as(right) else right)
                if found is not None:
                    return found
        return None

    def _together(self, call: relax.Call, name: str, function: Any) -> relax.Expr | None:
        """x * (a * b) for (x * a) * b with integers a and b; likewise sums.

        Integer arithmetic wraps around, so that the order does not matter. Floats keep theirs: the
        combined constant may overflow, underflow or cancel where the two operations do not.
        """
        if not dtype_of(call).startswith(("int", "uint")):
            return None
        for data, outer in (call.args, call.args[::-1]):
            inner = self.scope.match_call(data, name) if scalar_of(outer) is not None else None
            for base, factor in () if inner is None else (inner.args, inner.args[::-1]):
                if scalar_of(factor) is not None and static_shape(base) == static_shape(call):
                    first, second = (view_of(each.value).flat[0] for each in (factor, outer))
                    with np.errstate(over="ignore"):
                        both = constant(function(first, second))
                    return self.vocabulary.make(name, base, both)
        return None


class _Simplify(Simplify):
    """Simplify calls one by one.

    1. A reshape, broadcast, cast, transposition, slice or concatenation that changes nothing
       becomes its operand; a concatenation loses its empty operands.
    2. `flatten`, `expand_dims`, `squeeze` become `reshape`, and a reshape of a reshape one reshape.
       A matmul whose batch axes are merged before it and split after it keeps them.
       Casts between types of floats move before reshapes.
    3. A transposition of a transposition becomes one; one that only moves axes of extent 1
       becomes a reshape.
    4. x + 0, x - 0, x * 1, x / 1 and x ** 1 become x.
    5. (x * a) * b with integers a, b becomes x * (a * b), and likewise sums; for floats, x / a
       becomes x * (1 / a) where that is exact, that is for powers of two.
    6. x ** 2 becomes x * x, x ** 0.5 sqrt(x), x ** -0.5 and 1 / sqrt(x) rsqrt(x), x ** 0.25
       sqrt(sqrt(x)), and x ** 0.75 the product of the two roots.
    7. relu(relu(x)) becomes relu(x), and clip(clip(x)) one clip.
    8. What has no elements becomes a constant, and nothing is left to compute it. A matmul or a
       convolution that sums no products becomes zeros, and a scatter without indices its operand.

        before   lv = reshape(x, (1, 128, 12, 64)); lv1 = reshape(lv, (128, 768))
                 lv2 = multiply(lv1, 1)
        after    lv1 = reshape(x, (128, 768))
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        nothing = _without_elements(call.ty) if name else None
        if nothing is not None:
            return nothing
        facts = facts_in_relay(name)
        if facts.sums_products or facts.kind == SCATTER:
            empty = [0 in (static_shape(each) or ()) for each in _operands(call)]
            shape = static_shape(call)
            if facts.sums_products and any(empty) and shape is not None:
                return relax.op.zeros(shape, dtype_of(call))
            if facts.kind == SCATTER and empty[1]:
                return call.args[0]
        rule = _RULES.get(name)
        return rule(self, call) if rule is not None else None

    def reshape(self, call: relax.Call) -> relax.Expr | None:
        data, shape = call.args[0], static_shape(call)
        is_new = shape is not None and static_shape(data) != shape and 0 not in shape
        product = self._product_with_batch(data, shape) if shape is not None and is_new else None
        if product is None:
            return super().reshape(call)
        return product if static_shape(product) == shape else relax.op.reshape(product, shape)

    def _product_with_batch(self, data: relax.Expr, shape: tuple[int, ...]) -> relax.Expr | None:
        """The product that `data` is, over the batch axes that reshapes of its operands join.

        reshape(X, [b * m, k]) * W[k, n] -> X * W, and
        reshape(X[a, b, m, k], [a * b, m, k]) * reshape(Y[a, b, k, n], [a * b, k, n]) -> X * Y.
        X of the first form has the batch axes of `shape`, or its own.
        """
        call = self.scope.match_call(data, "nn.matmul")
        if call is None or not self.scope.used_once(data):
            return None
        left, right = (self.before_reshapes(arg) for arg in call.args)
        joined, weight = static_shape(call.args[0]), static_shape(call.args[1])
        outer, inner = static_shape(left), static_shape(right)
        if left.same_as(call.args[0]) or not (joined and weight and outer and inner):
            return None
        if len(joined) == len(weight) == 2:
            right, wanted = call.args[1], (*shape[:-1], joined[-1])
            if len(shape) > 2 and shape[-1] == weight[-1] and wanted != outer:
                left = relax.op.reshape(left, wanted)
            elif len(outer) < 3 or outer[-1] != joined[-1]:
                return None
        elif not len(joined) == len(weight) == 3 < len(outer) or (
            (outer[:-2], outer[-2:], inner[-2:]) != (inner[:-2], joined[-2:], weight[-2:])
        ):
            return None
        return relax.op.matmul(left, right, call.attrs.out_dtype or None)

    def cast(self, call: relax.Call) -> relax.Expr | None:
        """Move a cast between floating-point types before the reshape that precedes it."""
        data = call.args[0]
        inner = self.before_reshapes(data)
        shape = static_shape(call)
        is_of_floats = all("float" in dtype_of(each) for each in (call, data))
        if inner.same_as(data) or shape is None or not is_of_floats or 0 in shape:
            return self.unchanged(call)
        return relax.op.reshape(relax.op.astype(inner, dtype_of(call)), shape)

    def strided_slice(self, call: relax.Call) -> relax.Expr | None:
        strides = call.args[4] if len(call.args) > 4 else None
        if isinstance(strides, relax.Tuple) and set(integers(strides.fields) or (0,)) != {1}:
            return None
        return self.unchanged(call)

    def concat(self, call: relax.Call) -> relax.Expr | None:
        tensors = self.scope.definition(call.args[0])
        if not isinstance(tensors, relax.Tuple) or call.attrs.axis is None:
            return None
        shapes = [static_shape(tensor) for tensor in tensors.fields]
        kept = [
            tensor
            for tensor, shape in zip(tensors.fields, shapes)
            if shape is None or 0 not in shape
        ]
        if len(kept) == 1:
            return kept[0]
        if not kept or len(kept) == len(tensors.fields):
            return None
        return relax.op.concat(kept, int(call.attrs.axis))

    def permute_dims(self, call: relax.Call) -> relax.Expr | None:
        data, shape = call.args[0], static_shape(call.args[0])
        if shape is None:
            return None
        axes = _axes(call, len(shape))
        inner = self.scope.match_call(data, "transpose")
        if inner is not None:
            first = _axes(inner, len(shape))
            data, axes = inner.args[0], tuple(first[axis] for axis in axes)
            shape = static_shape(data)
            assert shape is not None
        if axes == tuple(range(len(shape))):
            return data
        moving = [axis for axis in axes if shape[axis] != 1]
        if moving == sorted(moving) and 0 not in shape:
            return relax.op.reshape(self.before_reshapes(data), [shape[axis] for axis in axes])
        return relax.op.permute_dims(data, list(axes)) if inner is not None else None

    def divide(self, call: relax.Call) -> relax.Expr | None:
        data, divisor = call.args
        found = super().divide(call)
        number = scalar_of(divisor) if dtype_of(call).startswith("float") else None
        if found is not None or number is None:
            return found
        if not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
            return None
        array = array_of(divisor)
        assert array is not None
        with np.errstate(over="ignore"):
            inverse = np.reciprocal(array)
        if not np.isfinite(inverse).all() or (inverse == 0).any():
            return None
        return relax.op.multiply(data, constant(inverse))

    def power(self, call: relax.Call) -> relax.Expr | None:
        data, exponent = call.args[0], scalar_of(call.args[1])
        if static_shape(call) is None or static_shape(call) != static_shape(data):
            return None
        if exponent == 1.0:
            return data
        if exponent == 2.0:
            return relax.op.multiply(data, data)
        if exponent in (0.25, 0.75):
            root = relax.op.sqrt(data)
            fourth = relax.op.sqrt(root)
            return fourth if exponent == 0.25 else relax.op.multiply(root, fourth)
        if exponent == 0.5:
            return relax.op.sqrt(data)
        return relax.op.rsqrt(data) if exponent == -0.5 else None

    def relu(self, call: relax.Call) -> relax.Expr | None:
        data = call.args[0]
        return data if self.scope.match_call(data, "nn.relu") is not None else None

    def clip(self, call: relax.Call) -> relax.Expr | None:
        inner = self.scope.match_call(call.args[0], "clip")
        if inner is None:
            return None
        outer_low, outer_high = (bound.value for bound in call.args[1:])
        inner_low, inner_high = (bound.value for bound in inner.args[1:])
        if not (inner_low <= inner_high and outer_low <= outer_high):
            return None
        bounds = (min(max(bound, outer_low), outer_high) for bound in (inner_low, inner_high))
        return relax.op.clip(inner.args[0], *bounds)


def if_alike(call: relax.Call, data: relax.Expr) -> relax.Expr | None:
    """`data`, if the call has its static shape and dtype; else None."""
    same = static_shape(call) is not None and static_shape(call) == static_shape(data)
    return data if same and dtype_of(call) == dtype_of(data) else None


def _axes(call: relax.Call, rank: int) -> tuple[int, ...]:
    axes: Any = call.attrs.axes
    if axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in axes)


def _operands(call: relax.Call) -> list[relax.Expr]:
    first = call.args[0]
    return list(first.fields) if isinstance(first, relax.Tuple) else list(call.args)


_RULES: dict[str, Callable[[_Simplify, relax.Call], relax.Expr | None]] = {
    **dict.fromkeys(Simplify.reshapes, _Simplify.reshape),
    "add": _Simplify.add,
    "broadcast_to": _Simplify.unchanged,
    "cast": _Simplify.cast,
    "clip": _Simplify.clip,
    "concatenate": _Simplify.concat,
    "divide": _Simplify.divide,
    "multiply": _Simplify.multiply,
    "nn.relu": _Simplify.relu,
    "power": _Simplify.power,
    "strided_slice": _Simplify.strided_slice,
    "subtract": _Simplify.subtract,
    "transpose": _Simplify.permute_dims,
}


def _without_elements(ty: Any) -> relax.Expr | None:
    """A constant of a type without elements; None where there may be some."""
    if isinstance(ty, relax.TupleType):
        fields = [_without_elements(field) for field in ty.fields]
        return None if None in fields or not fields else relax.Tuple(fields)
    shape = shape_of_type(ty)
    if shape is None or 0 not in shape or str(ty.dtype) not in NUMPY_DTYPES:
        return None
    return constant(np.zeros(shape, str(ty.dtype)))


SimplifyExpr = call_pass("SimplifyExpr", 0, _Simplify)
