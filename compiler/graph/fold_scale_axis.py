"""Folding of constant scales and shifts into the weights and bias of the operator before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from .constants import array_of, constant, dtype_of, static_shape
from .rewrite import CallRule, operator_name, rewrite_calls

CONVOLUTIONS = frozenset(f"nn.conv{n}d{suffix}" for n in (1, 2, 3) for suffix in ("", "_transpose"))


@tvm.transform.module_pass(opt_level=3, name="FoldScaleAxis")
class FoldScaleAxis:
    """Fold per-channel constants that follow a convolution or a matmul into its weights and bias.

    With `op` a convolution of any rank, layout and grouping or a matmul, w its constant weights
    and a, b constants that vary along the output channels only:

    1. op(x, w) * a becomes op(x, w * a); likewise op(x, w) / a.
    2. (op(x, w) + b) * a becomes op(x, w * a) + b * a; likewise with - b and / a.
    3. (op(x, w) + b) + c becomes op(x, w) + (b + c).

    An intermediate result that something else reads is never folded: it would be computed twice.
    After `SimplifyInference` this folds batch norm. New weights are computed in float64.

    Before::

        lv = nn.conv2d(x, const w)
        lv1 = multiply(lv, const a[1, C, 1, 1])
        lv2 = add(lv1, const b[1, C, 1, 1])

    After::

        lv = nn.conv2d(x, const w * a)
        lv2 = add(lv, const b[1, C, 1, 1])
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Fold in every Relax function."""
        return rewrite_calls(mod, _Fold)


class _Fold(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name in ("multiply", "divide"):
            return self._scale(call, name)
        if name in ("add", "subtract"):
            return self._shift(call, name)
        return None

    def _scale(self, call: relax.Call, name: str) -> relax.Expr | None:
        value, factor = self._with_constant(call, commutative=name == "multiply")
        if factor is None or factor.dtype.kind != "f" or not self.scope.used_once(value):
            return None
        factor = factor.astype("float64")
        if name == "divide":
            if (factor == 0).any():
                return None
            factor = 1 / factor
        anchor = self.scope.definition(value)
        bias = None
        if operator_name(anchor) in ("add", "subtract"):
            sign = -1.0 if operator_name(anchor) == "subtract" else 1.0
            value, addend = self._with_constant(anchor, commutative=sign > 0)
            if addend is None or not self.scope.used_once(value):
                return None
            bias = sign * addend.astype("float64")
            anchor = self.scope.definition(value)
        axis = _channel_axis(anchor)
        if axis is None or static_shape(call) != static_shape(value):
            return None
        scale = _per_channel(factor, value, axis)
        if scale is None or (bias is not None and _per_channel(bias, value, axis) is None):
            return None
        scaled = _scale_weights(anchor, scale)
        if scaled is None or bias is None:
            return scaled
        return relax.op.add(scaled, constant((bias * factor).astype(dtype_of(value))))

    def _shift(self, call: relax.Call, name: str) -> relax.Expr | None:
        value, second = self._with_constant(call, commutative=name == "add")
        inner = self.scope.definition(value)
        if second is None or operator_name(inner) != "add" or not self.scope.used_once(value):
            return None
        base, first = self._with_constant(inner, commutative=True)
        if first is None or static_shape(call) != static_shape(base):
            return None
        axis = _channel_axis(self.scope.definition(base))
        if axis is None or _per_channel(first, base, axis) is None:
            return None
        if _per_channel(second, base, axis) is None:
            return None
        sign = -1.0 if name == "subtract" else 1.0
        total = first.astype("float64") + sign * second.astype("float64")
        return relax.op.add(base, constant(total.astype(dtype_of(base))))

    def _with_constant(self, call: relax.Call, commutative: bool) -> tuple[Any, np.ndarray | None]:
        """The operand of a binary call that is not a constant, and the value of the one that is."""
        left, right = call.args
        if array_of(right) is None and commutative:
            left, right = right, left
        return left, array_of(right)


def _channel_axis(anchor: Any) -> int | None:
    """Axis of the output channels in the result of a convolution or matmul; None for others."""
    name = operator_name(anchor)
    shape = static_shape(anchor) if name else None
    if shape is None or dtype_of(anchor) != dtype_of(anchor.args[0]):
        return None
    if name == "matmul":
        weights = static_shape(anchor.args[1])
        return len(shape) - 1 if weights is not None and len(weights) == 2 else None
    if name in CONVOLUTIONS:
        layout = str(anchor.attrs.out_layout or anchor.attrs.data_layout)
        return layout.index("C") if len(layout) == len(shape) else None
    return None


def _per_channel(array: np.ndarray, value: relax.Expr, axis: int) -> np.ndarray | None:
    """`array` as one number per channel, of shape (C,); None if it varies along another axis."""
    shape = static_shape(value)
    assert shape is not None
    if array.ndim > len(shape):
        return None
    full = (1,) * (len(shape) - array.ndim) + array.shape
    if any(extent != 1 for i, extent in enumerate(full) if i != axis):
        return None
    return np.broadcast_to(array.reshape(-1), (shape[axis],))


def _scale_weights(anchor: relax.Call, scale: np.ndarray) -> relax.Expr | None:
    """The call `anchor` with its weights scaled by one float64 number per output channel."""
    weights = array_of(anchor.args[1])
    if weights is None or weights.dtype.kind != "f":
        return None
    scaled = _scaled(anchor, weights, scale)
    if scaled is None:
        return None
    arguments = [anchor.args[0], constant(scaled.astype(weights.dtype)), *anchor.args[2:]]
    return tvm.ir.Call(anchor.op, arguments, anchor.attrs, anchor.ty_args)


def _scaled(anchor: relax.Call, weights: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    name = operator_name(anchor)
    if name == "matmul":
        return weights * scale
    layout = str(anchor.attrs.kernel_layout)
    if len(layout) != weights.ndim:
        return None
    out, groups = layout.index("O"), int(anchor.attrs.groups)
    if not name.endswith("_transpose"):
        if weights.shape[out] != scale.size:
            return None
        along = [1] * weights.ndim
        along[out] = scale.size
        return weights * scale.reshape(along)
    # The weights of a transposed convolution hold the outputs of one group: each group's slice
    # of the input channels has its own part of the scale.
    inner = layout.index("I")
    if weights.shape[out] * groups != scale.size:
        return None
    moved = np.moveaxis(weights, (inner, out), (0, 1))
    grouped = moved.reshape(groups, moved.shape[0] // groups, *moved.shape[1:])
    along = [groups, 1, scale.size // groups] + [1] * (moved.ndim - 2)
    result = (grouped * scale.reshape(along)).reshape(moved.shape)
    return np.moveaxis(result, (0, 1), (inner, out))
