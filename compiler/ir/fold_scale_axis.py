"""Fold per-channel scales into the weights of convolutions and matmuls.

Backward, a scale of the result moves through sums and relu into the weights:

    relu(conv2d(x, w) + b) * a -> relu(conv2d(x, w * a) + b * a)        a > 0

Forward, a scale of the data moves into the weights:

    conv2d(relu(x * a + b), w) -> conv2d(relu(x + b / a), w * a)        a > 0
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from .constants import array_of, constant, dtype_of, static_shape
from .op_dialect import RELAX, SharedRule, Vocabulary
from .op_facts import CONVOLUTION, RESHAPE, TRANSPOSED_CONVOLUTION, all_facts, facts_in_relay
from .rewrite import call_pass, variables_of

CONVOLUTIONS = frozenset(
    each.relay_name for each in all_facts() if each.kind in (CONVOLUTION, TRANSPOSED_CONVOLUTION)
)
_PRODUCTS = ("nn.dense", "nn.matmul")
_HOMOGENEOUS = frozenset(each.relay_name for each in all_facts() if each.homogeneous)
"""A positive scale may be applied before or after these operators."""
_FUNCTIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


class _ScaleRule(SharedRule):
    """Shared rules; a scale is an operand that broadcasts to the value it multiplies."""

    def computed(self, name: str, left: Any, right: Any) -> relax.Expr | None:
        """The sum, product, ... of two operands; None if it must be computed at run time."""
        a, b = self.array(left), self.array(right)
        if name == "divide" and b is not None and not b.all():
            return None
        if a is not None and b is not None:
            return _rounded(_FUNCTIONS[name](a.astype("float64"), b), dtype_of(left), a, b)
        return None if self.vocabulary.constants_only else self.vocabulary.make(name, left, right)

    def array(self, expr: Any) -> np.ndarray | None:
        """The value of a constant, or of a reshaped constant."""
        value = self.scope.definition(expr)
        if facts_in_relay(self.name(value)).kind == RESHAPE and static_shape(value) is not None:
            inner = self.array(value.args[0])
            return None if inner is None else inner.reshape(static_shape(value))
        found = array_of(value)
        return found if found is not None and found.dtype.kind == "f" else None

    def is_positive(self, scale: Any) -> bool:
        array = self.array(scale)
        return array is not None and bool((array > 0).all())

    def is_scale(self, scale: Any, value: Any, call: relax.Call, axes: tuple[int, ...]) -> bool:
        """Whether `call` multiplies `value` by a foldable scale along these axes."""
        known = not self.vocabulary.constants_only or self.array(scale) is not None
        return known and _same_type(value, call) and self.varies_along(scale, value, axes)

    def varies_along(self, operand: Any, value: Any, axes: tuple[int, ...]) -> bool:
        """Whether `operand` is a scalar, or varies only along these axes of `value`."""
        given, whole = _extents(operand), _extents(value)
        if given is None or whole is None or len(given) > len(whole):
            return False
        given = [1] * (len(whole) - len(given)) + given
        full = [extent if axis in axes else 1 for axis, extent in enumerate(whole)]
        return given in (full, [1] * len(whole))

    def scaled_place(self, total: relax.Call, axes: tuple[int, ...]) -> int | None:
        """Index of the operand of a sum that may carry a scale; the other is a shift."""
        for place, (value, other) in enumerate((total.args, total.args[::-1])):
            is_whole = self.array(value) is None and _same_type(value, total)
            if is_whole and self.varies_along(other, total, axes):
                return place
        return None

    def with_weights(self, anchor: relax.Call, data: Any, scale: Any, letter: str) -> Any:
        """Copy the call with other data, and weights scaled along their outputs, "O", or inputs."""
        weights, shape, given = anchor.args[1], static_shape(anchor.args[1]), static_shape(scale)
        if shape is None or given is None:
            return None
        axes, size = self._weight_axes(anchor, letter), math.prod(given)
        along = [extent if i in axes and size > 1 else 1 for i, extent in enumerate(shape)]
        if math.prod(along) == size:
            scaled = self.computed("multiply", weights, self._reshaped(scale, along))
        else:
            scaled = self._of_groups(anchor, weights, scale) if letter == "O" else None
        if scaled is None:
            return None
        return self.vocabulary.again(anchor, [data, scaled, *anchor.args[2:]])

    def _of_groups(self, anchor: relax.Call, weights: Any, scale: Any) -> relax.Expr | None:
        """Scale a transposed convolution's weights by group: each has its slice of the scale."""
        values, factors, groups = self.array(weights), self.array(scale), anchor.attrs["groups"]
        (inner,), (outer,) = self._weight_axes(anchor, "I"), self._weight_axes(anchor, "O")
        if values is None or factors is None or values.shape[outer] * groups != factors.size:
            return None
        moved = np.moveaxis(values, (inner, outer), (0, 1))
        grouped = moved.reshape(groups, -1, *moved.shape[1:])
        along = [groups, 1, factors.size // groups] + [1] * (moved.ndim - 2)
        result = (grouped * factors.astype("float64").reshape(along)).reshape(moved.shape)
        result = np.moveaxis(result, (0, 1), (inner, outer))
        return _rounded(result, str(values.dtype), values, factors)

    def result_axes(self, anchor: relax.Call) -> tuple[int, ...] | None:
        """Axes of the output channels in the result; None if computed in another dtype."""
        if dtype_of(anchor) != dtype_of(anchor.args[0]):
            return None
        if self.name(anchor) in _PRODUCTS:
            return (anchor.ty.ndim - 1,) if anchor.args[1].ty.ndim == 2 else None
        layout = str(anchor.attrs["out_layout"] or anchor.attrs["data_layout"])
        return _axes(layout, "C")

    def data_axes(self, anchor: relax.Call) -> tuple[int, ...] | None:
        """Axes of the input channels in the data, where the weights have them all, else None."""
        if self.name(anchor) in _PRODUCTS:
            own = bool(getattr(anchor.attrs, "transpose_a", False))
            return (
                (anchor.args[0].ty.ndim - 1,) if anchor.args[1].ty.ndim == 2 and not own else None
            )
        whole = int(anchor.attrs["groups"]) == 1 or self._is_depthwise(anchor)
        return _axes(str(anchor.attrs["data_layout"]), "C") if whole else None

    def _is_depthwise(self, anchor: relax.Call) -> bool:
        """Whether a convolution is depthwise with one filter per channel."""
        shape = static_shape(anchor.args[1])
        if shape is None or self.name(anchor).endswith("_transpose"):
            return False
        filters, inputs = (
            math.prod(shape[axis] for axis in self._weight_axes(anchor, letter)) for letter in "OI"
        )
        return (filters, inputs) == (int(anchor.attrs["groups"]), 1)

    def _weight_axes(self, anchor: relax.Call, letter: str) -> tuple[int, ...]:
        name = self.name(anchor)
        if name in CONVOLUTIONS:
            return _axes(str(anchor.attrs["kernel_layout"]), letter)
        transposed = name == "nn.dense" or bool(getattr(anchor.attrs, "transpose_b", False))
        return (0 if transposed == (letter == "O") else 1,)

    def _reshaped(self, expr: Any, shape: list[int]) -> Any:
        array = self.array(expr)
        if array is not None:
            return constant(array.reshape(shape))
        return self.vocabulary.make("reshape", expr, newshape=shape)


class Backward(_ScaleRule):
    """Fold per-channel constants that follow a convolution or a matmul into its weights and bias.

    With `op` a convolution of any rank, layout and grouping or a matmul, w its constant weights and
    a, b constants that vary along the output channels only:

    1. op(x, w) * a becomes op(x, w * a); likewise op(x, w) / a.
    2. (op(x, w) + b) * a becomes op(x, w * a) + b * a; likewise with - b and / a. A positive a
       passes relu as well.
    3. (op(x, w) + b) + c becomes op(x, w) + (b + c).

    An intermediate result that something else reads is never folded: it would be computed twice.
    After `SimplifyInference` this folds batch norm. New weights are computed in float64.

        before   lv = nn.conv2d(x, const w)
                 lv1 = multiply(lv, const a[1, C, 1, 1])
                 lv2 = add(lv1, const b[1, C, 1, 1])
        after    lv = nn.conv2d(x, const w * a)
                 lv2 = add(lv, const b[1, C, 1, 1])
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name in ("add", "subtract"):
            return self._shifted(call, name)
        if name == "multiply":
            scaled = self._folded(call, *call.args)
            return self._folded(call, *call.args[::-1]) if scaled is None else scaled
        if name == "divide" and self.array(call.args[1]) is not None:
            # Between constants there is no intermediate rounding.
            dtype = "float64" if self.vocabulary.constants_only else dtype_of(call)
            one = constant(np.ones((), dtype))
            inverse = self.computed("divide", one, call.args[1])
            return None if inverse is None else self._folded(call, call.args[0], inverse)
        return None

    def _folded(self, call: relax.Call, value: Any, scale: Any) -> relax.Expr | None:
        axes = self._channels(value)
        if axes is None or not self.is_scale(scale, value, call, axes):
            return None
        return self._scaled(value, scale, axes)

    def _channels(self, value: Any) -> tuple[int, ...] | None:
        """Axes of the output channels of the operator whose result `value` is, after sums."""
        call = self.scope.definition(value)
        name = self.name(call)
        if not self.scope.used_once(value):
            return None
        if name in CONVOLUTIONS or name in _PRODUCTS:
            return self.result_axes(call)
        if name in ("nn.bias_add", *_HOMOGENEOUS):
            return self._channels(call.args[0])
        found = None
        if name in ("add", "subtract"):
            found = self._channels(call.args[0])
            found = self._channels(call.args[1]) if found is None else found
        return found

    def _scaled(self, value: Any, scale: Any, axes: tuple[int, ...]) -> relax.Expr | None:
        """`value` times a scale, with the scale inside; None if it can't go there."""
        call = self.scope.definition(value)
        name, again = self.name(call), self.vocabulary.again
        if not self.scope.used_once(value) or self._channels(value) != axes:
            return None
        if name in CONVOLUTIONS or name in _PRODUCTS:
            return self.with_weights(call, call.args[0], scale, "O")
        if name in ("add", "subtract"):
            return self._scaled_sum(call, scale, axes)
        if name in _HOMOGENEOUS and not self.is_positive(scale):
            return None
        inner = [self._scaled(call.args[0], scale, axes)]
        if name == "nn.bias_add" and inner[0] is not None:
            size = math.prod(static_shape(scale) or ())
            vector = self._reshaped(scale, [size] if size > 1 else [1])
            inner.append(self.computed("multiply", call.args[1], vector))
        return None if None in inner else again(call, inner)

    def _scaled_sum(self, call: relax.Call, scale: Any, axes: tuple[int, ...]) -> Any:
        place = self.scaled_place(call, axes)
        if place is None and not _same_type(*call.args):
            return None
        made = [
            self.computed("multiply", each, scale)
            if place == 1 - i
            else self._scaled(each, scale, axes)
            for i, each in enumerate(call.args)
        ]
        return None if None in made else self.vocabulary.again(call, made)

    def _shifted(self, call: relax.Call, name: str) -> relax.Expr | None:
        """x + (b + c) for (x + b) + c."""
        value, second = _constant_last(call) if name == "add" else call.args
        inner = self.scope.match_call(value, "add")
        if inner is None or not self.scope.used_once(value) or not _same_type(call, value):
            return None
        base, first = _constant_last(inner)
        anchor = self.scope.definition(base)
        is_anchor = self.name(anchor) in CONVOLUTIONS or self.name(anchor) in _PRODUCTS
        axes = self.result_axes(anchor) if is_anchor else None
        if axes is None:
            return None
        for shift in (first, second):
            if self.array(shift) is None or not self.varies_along(shift, base, axes):
                return None
        b, c = self.array(first), self.array(second)
        if b is None or c is None or _cancels(b, c, _FUNCTIONS[name]):
            return None
        total = self.computed(name, first, second)
        return None if total is None else self.vocabulary.make("add", base, total)


def _rounded(result: np.ndarray, dtype: str, *operands: np.ndarray) -> relax.Expr | None:
    """A float64 result as a constant of `dtype`; None if finite operands overflow.

    None also if a nonzero result is all below the normal range: what it replaces may not be.
    """
    with np.errstate(over="ignore"):
        rounded = result.astype(dtype)
    finite = all(np.isfinite(each).all() for each in operands)
    largest = np.abs(result).max(initial=0.0)
    if (finite and not np.isfinite(rounded).all()) or 0 < largest < np.finfo(dtype).tiny:
        return None
    return constant(rounded)


def _cancels(first: np.ndarray, second: np.ndarray, function: Any) -> bool:
    """Whether constants cancel to 2 ** -16 or less of their size: they round what is between."""
    first, second = np.broadcast_arrays(first.astype("float64"), second)
    total = np.abs(function(first, second))
    return bool((total < 2.0**-16 * np.maximum(np.abs(first), np.abs(second))).any())


def _constant_last(call: relax.Call) -> tuple[Any, Any]:
    """The operands of a commutative call, with the constant last."""
    left, right = call.args
    return (right, left) if array_of(right) is None else (left, right)


class Forward(_ScaleRule):
    """Move per-channel constants that precede a convolution or matmul into its weights.

    1. op(x * a, w) becomes op(x, w * a).
    2. op(relu(x * a + b), w) becomes op(relu(x + b / a), w * a) where a is positive.

    Every reader of the scaled value must be such an operator. TVM did so to the batch norms of
    pre-activation networks. New weights are computed in float64.
    """

    def __init__(self, vocabulary: Vocabulary = RELAX) -> None:
        super().__init__(vocabulary)
        self._wanted: dict[relax.Var, _Wanted | None] | None = None
        self._pulled: dict[relax.Var, tuple[Any, Any] | None] = {}

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in CONVOLUTIONS and name not in _PRODUCTS:
            return None
        if self._wanted is None:
            self._wanted = self._all_wanted()
        found = self._without_scale(call.args[0])
        if found is None:
            return None
        data, scale = found
        groups = name in CONVOLUTIONS and self._is_depthwise(call)
        return self.with_weights(call, data, scale, "O" if groups else "I")

    def _all_wanted(self) -> dict[relax.Var, _Wanted | None]:
        """The scale that all readers of a variable can absorb; None if one cannot."""
        wanted: dict[relax.Var, _Wanted | None] = {}

        def want(expr: relax.Expr, asked: _Wanted | None) -> None:
            for var in variables_of(expr):
                wanted[var] = _both(wanted[var], asked) if var in wanted else asked

        body = self.scope.function.body
        want(body.body, None)
        for binding in reversed([each for block in body.blocks for each in block.bindings]):
            value = binding.value
            asked = self._asked(value, wanted.get(binding.var)) if self.name(value) else {}
            for place, operand in enumerate(getattr(value, "args", [value])):
                want(operand, asked.get(place))
        return wanted

    def _asked(self, call: relax.Call, wanted: _Wanted | None) -> dict[int, _Wanted]:
        """The scale that a call can absorb, given what the readers of its result can."""
        name = self.name(call)
        if name in CONVOLUTIONS or name in _PRODUCTS:
            axes = self.data_axes(call)
            is_known = not self.vocabulary.constants_only or self.array(call.args[1]) is not None
            return {0: _Wanted(axes)} if axes is not None and is_known else {}
        if wanted is not None and name in _HOMOGENEOUS:
            return {0: _Wanted(wanted.axes, True)}
        if wanted is not None and name in ("add", "subtract"):
            place = self.scaled_place(call, wanted.axes)
            return {} if place is None else {place: wanted}
        return {}

    def _without_scale(self, value: Any) -> tuple[relax.Expr, relax.Expr] | None:
        """Base and scale of a scaled value; None if its readers cannot absorb the scale."""
        wanted = (self._wanted or {}).get(value) if isinstance(value, relax.Var) else None
        if wanted is None:
            return None
        if value not in self._pulled:
            self._pulled[value] = self._pull(self.scope.definition(value), wanted)
        return self._pulled[value]

    def _pull(self, call: Any, wanted: _Wanted) -> tuple[relax.Expr, relax.Expr] | None:
        name = self.name(call)
        if name == "multiply":
            for value, scale in (call.args, call.args[::-1]):
                passes = not wanted.positive or self.is_positive(scale)
                if passes and self.is_scale(scale, value, call, wanted.axes):
                    return value, scale
        is_sum = name in ("add", "subtract")
        place = self.scaled_place(call, wanted.axes) if is_sum else 0
        if place is None or not (is_sum or name in _HOMOGENEOUS):
            return None
        found = self._without_scale(call.args[place])
        if found is None:
            return None
        operands = [
            found[0] if i == place else self.computed("divide", each, found[1])
            for i, each in enumerate(call.args)
        ]
        if None in operands:
            return None
        return self.scope.emit(self.vocabulary.again(call, operands)), found[1]


@dataclass(frozen=True)
class _Wanted:
    """A scale that can be absorbed: its axes, and whether it must be positive."""

    axes: tuple[int, ...]
    positive: bool = False


def _both(first: _Wanted | None, second: _Wanted | None) -> _Wanted | None:
    """The scale that two readers of one value can both absorb."""
    if first is None or second is None or first.axes != second.axes:
        return None
    return _Wanted(first.axes, first.positive or second.positive)


def _axes(layout: str, letter: str) -> tuple[int, ...]:
    """Axes of a letter in a layout, with the block split from it: "NCHW4c" has C in 1 and 4."""
    letters = re.sub(r"\d", "", layout)
    return tuple(i for i, each in enumerate(letters) if each.upper() == letter)


def _extents(expr: Any) -> list[int] | None:
    """Extents; -1 for dynamic ones."""
    shape = getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(each) if isinstance(each, tvm.tirx.IntImm) else -1 for each in shape.values]


def _same_type(left: relax.Expr, right: relax.Expr) -> bool:
    return left.ty.same_as(right.ty) or bool(tvm_ffi.structural_equal(left.ty, right.ty))


FoldScaleAxis = call_pass("FoldScaleAxis", 3, Backward)
ForwardFoldScaleAxis = call_pass("ForwardFoldScaleAxis", 3, Forward)
