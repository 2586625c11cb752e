"""im2col for dynamic image or signal extents: convolutions as matmuls of patches and weights.

    before   y = gelu(conv1d(x, w) + b)                       x (n, C, frames), w (O, C, K)

    after    x1 = permute_dims(x, [0, 2, 1])
             p1 = patches of x1                               (n, frames', K, C)
             y1 = gelu(matmul(reshape(p1, (n, frames', K C)), w1) + b)
             y = permute_dims(y1, [0, 2, 1])

Schedules of convolutions require static extents. A matmul with constant weights takes any number
of rows, which here are all positions of all images. Elementwise operators and further convolutions
after it stay in channels-last layout, and so do slices and concatenations of such values.
Convolutions of 3x3 with stride 1 and whole vectors of channels use Winograd
(`schedules.x86.conv.winograd_dynamic`) unless a build may not round differently. Depthwise
convolutions have their own kernel (`schedules.x86.conv.depthwise_dynamic`); other groups are one
matmul each. A transposed convolution whose windows do not overlap is a matmul, too, followed by a
rearrangement. Pools take channels-last values as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.target import Target

from schedules.x86.conv import depthwise_dynamic, winograd_dynamic

from ...ir.constants import array_of, constant, static_shape
from ...ir.dynamic_shape import simplified
from ...ir.op_dialect import RELAX
from ...ir.op_facts import BINARY, UNARY, facts_named
from ...ir.rewrite import CallRule, rewrite_calls
from ..selection.ops.conv2d import ints
from .insert_shape_checks import AGREED, emit_checked, is_checked

_LAYOUTS = {
    "nn.conv1d": ("NCW", "OIW"),
    "nn.conv2d": ("NCHW", "OIHW"),
    "nn.conv3d": ("NCDHW", "OIDHW"),
}
_POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
_REDUCTIONS = ("max", "mean", "min", "sum", "variance")
MOST_GROUPS = 64
"""Groups of a convolution that become matmuls."""


def multiply_patches(
    mod: tvm.IRModule, name: str, target: Target, winograd: bool = True
) -> tvm.IRModule:
    """Rewrite convolutions without a static kernel; `winograd` allows 3x3 to round differently."""
    return rewrite_calls(mod, partial(_Patches, target, winograd), [name])


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _to_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


class _Patches(CallRule):
    def __init__(self, target: Target, winograd: bool) -> None:
        super().__init__()
        self.target, self.winograd = target, winograd

    def name(self, expr: Any) -> str:
        return AGREED if is_checked(expr) else super().name(expr)

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name in _LAYOUTS:
            return self._convolution(call, *_LAYOUTS[name])
        if name == "nn.conv2d_transpose":
            return self._transposed(call)
        if name == "permute_dims":
            return self._permutation(call)
        kind = facts_named(name).kind
        if kind == UNARY and self._last(call.args[0]) is not None:
            made = RELAX.again(call, [self._last(call.args[0]), *call.args[1:]])
            return self._first(made, call.ty.ndim)
        if kind == BINARY:
            return self._pair(call)
        if name == "concat":
            return self._joined(call)
        if name in _POOLS:
            return self._pool(call)
        if name == AGREED:
            return self._agreed(call)
        if (
            name in ("relay.slice_window", "repeat", "split")
            and self._last(call.args[0]) is not None
        ):
            return self._part(call, name)
        if name in _REDUCTIONS and self._last(call.args[0]) is not None:
            return self._reduced(call)
        return None

    def _first(self, value: relax.Expr, rank: int) -> relax.Expr:
        return relax.op.permute_dims(self.scope.emit(value), _to_first(rank))

    def _last(self, value: relax.Expr) -> relax.Expr | None:
        """The channels-last form of a value with dynamic extents."""
        known = self.scope.definition(value)
        if isinstance(known, relax.TupleGetItem):
            whole = self.scope.definition(known.tuple_value)
            value = whole.fields[known.index] if isinstance(whole, relax.Tuple) else value
        permuted = self.scope.match_call(value, "permute_dims")
        if permuted is None or permuted.attrs.axes is None or static_shape(value) is not None:
            return None
        rank = len(permuted.attrs.axes)
        is_ours = rank >= 3 and list(ints(permuted.attrs.axes)) == _to_first(rank)
        return permuted.args[0] if is_ours else None

    def _permutation(self, call: relax.Call) -> relax.Expr | None:
        last = self._last(call.args[0])
        if last is None or call.attrs.axes is None:
            return None
        return last if list(ints(call.attrs.axes)) == _to_last(call.ty.ndim) else None

    def _pair(self, call: relax.Call) -> relax.Expr | None:
        """Two such values, or one and a value for each channel."""
        rank, last = call.ty.ndim, [self._last(arg) for arg in call.args]
        if all(each is None for each in last):
            return None
        operands = [
            self._of_channels(arg, rank) if own is None else own
            for arg, own in zip(call.args, last)
        ]
        if any(each is None for each in operands):
            return None
        return self._first(RELAX.again(call, operands), rank)

    def _of_channels(self, value: relax.Expr, rank: int) -> relax.Expr | None:
        """A value per channel, or a scalar, reshaped to broadcast with channels last."""
        known = array_of(value)
        if known is None:
            shape = value.ty.shape
            ones = shape.values[2:] if isinstance(shape, relax.ShapeExpr) else []
            if value.ty.ndim != rank or not all(
                isinstance(each, tirx.IntImm) and int(each) == 1 for each in ones
            ):
                return None
            return self.scope.emit(relax.op.permute_dims(value, _to_last(rank)))
        if known.ndim > rank:
            return None
        along = known.ndim - (rank - 1)  # the channel axis
        channels = known.shape[along] if along >= 0 else 1
        if known.size != channels:
            return None
        return constant(known.reshape((1,) * (rank - 1) + (channels,)))

    def _pool(self, call: relax.Call) -> relax.Expr | None:
        """Pool such a value."""
        attrs, image = call.attrs, self._last(call.args[0])
        if image is None or {attrs.layout, attrs.out_layout or "NCHW"} != {"NCHW"}:
            return None
        return self._first(RELAX.again(call, [image], layout="NHWC", out_layout="NHWC"), 4)

    def _reduced(self, call: relax.Call) -> relax.Expr | None:
        """Reduce such a value over positions, as an instance normalization does."""
        rank, axes = call.args[0].ty.ndim, call.attrs.axis
        axes = [] if axes is None else [int(axis) % rank for axis in axes]
        if sorted(axes) != list(range(2, rank)):
            return None
        own = list(range(1, rank - 1))
        made = RELAX.again(call, [self._last(call.args[0])], axis=own)
        return self._first(made, rank) if call.attrs.keepdims else made

    def _joined(self, call: relax.Call) -> relax.Expr | None:
        """Concatenate several such values; others are converted, as most later operators need."""
        parts = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
        last, rank = [self._last(part) for part in parts], call.ty.ndim
        if all(each is None for each in last) or call.attrs.axis is None:
            return None
        operands = [
            self.scope.emit(relax.op.permute_dims(part, _to_last(rank))) if own is None else own
            for part, own in zip(parts, last)
        ]
        axis = _to_last(rank).index(int(call.attrs.axis) % rank)
        return self._first(relax.op.concat(operands, axis), rank)

    def _agreed(self, call: relax.Call) -> relax.Expr | None:
        """The channels-last form of a value with checked extents."""
        given, checked, *_ = call.args[1].fields  # and symbols
        last = self._last(given)
        if last is None:
            return None
        shape = [call.ty.shape.values[axis] for axis in _to_last(call.ty.ndim)]
        return self._first(emit_checked(self.scope.builder, last, checked, shape), call.ty.ndim)

    def _part(self, call: relax.Call, name: str) -> relax.Expr | None:
        """Slice, repeat or split such a value."""
        value, rank = self._last(call.args[0]), call.args[0].ty.ndim
        order = _to_last(rank)
        if name != "relay.slice_window":
            if call.attrs.axis is None:
                return None
            axis = order.index(int(call.attrs.axis) % rank)
            made = RELAX.again(call, [value], axis=axis)
            if name == "repeat":
                return self._first(made, rank)
            parts = self.scope.emit(made)
            count = len(parts.ty.fields)
            return relax.Tuple([self._first(parts[index], rank) for index in range(count)])
        shapes = [relax.ShapeExpr([each.values[axis] for axis in order]) for each in call.args[1:]]
        return self._first(RELAX.again(call, [value, *shapes]), rank)

    def _convolution(self, call: relax.Call, layout: str, kernel: str) -> relax.Expr | None:
        attrs, (data, weights) = call.attrs, call.args
        names = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or layout)
        known, shape = array_of(weights), data.ty.shape
        groups = int(attrs.groups)
        if known is None or names != (layout, kernel, layout) or static_shape(data) is not None:
            return None
        if str(data.ty.dtype) != "float32" or not isinstance(shape, relax.ShapeExpr):
            return None
        rank = known.ndim
        taps, channels = known.shape[2:], known.shape[1]
        strides, dilation, pads = (
            ints(each) for each in (attrs.strides, attrs.dilation, attrs.padding)
        )
        image = self._last(data)
        if image is None:
            image = self.scope.emit(relax.op.permute_dims(data, _to_last(rank)))
        if groups > 1:
            return self._grouped(call, image, known, groups)
        if self.winograd and (taps, strides, dilation) == (
            (winograd_dynamic.TAPS,) * 2,
            (1, 1),
            (1, 1),
        ):
            plan = winograd_dynamic.plan(channels, known.shape[0], self.target)
            if plan is not None:
                packed = constant(winograd_dynamic.pack_weight(known, plan))
                made = self.scope.builder.emit_te(
                    partial(winograd_dynamic.compute, pads=tuple(pads), plan=plan),
                    *(image, packed),
                    primfunc_name_hint="conv2d_winograd",
                )
                return self._first(made, rank)
        if math.prod(taps) > 1 or max(strides) > 1 or any(pads):
            image = self.scope.builder.emit_te(
                _patches, image, taps, strides, dilation, pads, primfunc_name_hint="patches"
            )
            places = [*image.ty.shape.values[: rank - 1], math.prod(taps) * channels]
            image = self.scope.emit(relax.op.reshape(image, places))
        matrix = known.transpose(*range(2, rank), 1, 0).reshape(-1, known.shape[0])
        product = relax.op.matmul(image, constant(np.ascontiguousarray(matrix)))
        return self._first(product, rank)

    def _grouped(
        self, call: relax.Call, image: relax.Expr, weights: np.ndarray, groups: int
    ) -> relax.Expr | None:
        """A depthwise convolution as one kernel, other groups as matmuls of their patches."""
        rank, taps, channels = weights.ndim, weights.shape[2:], weights.shape[1]
        strides, dilation, pads = (
            ints(each) for each in (call.attrs.strides, call.attrs.dilation, call.attrs.padding)
        )
        builder = self.scope.builder
        if channels == 1 and weights.shape[0] == groups and rank == 4:
            plan = depthwise_dynamic.plan(
                groups, taps, tuple(strides), tuple(dilation), tuple(pads), self.target
            )
            if plan is None:
                return None
            made = builder.emit_te(
                partial(depthwise_dynamic.compute, plan=plan),
                *(image, constant(depthwise_dynamic.pack_weight(weights))),
                _places(image.ty.shape.values[1:-1], taps, strides, dilation, pads),
                primfunc_name_hint="conv2d_depthwise",
            )
            return self._first(made, rank)
        if channels == 1 or groups > MOST_GROUPS:
            return None
        patches = builder.emit_te(
            partial(_patches, groups=groups),
            *(image, taps, strides, dilation, pads),
            primfunc_name_hint="patches",
        )
        _, *places = patches.ty.shape.values[:rank]
        depth = math.prod(taps) * channels
        matrices = weights.reshape(groups, -1, *weights.shape[1:])
        matrices = matrices.transpose(0, *range(3, rank + 1), 2, 1).reshape(groups, depth, -1)
        parts = self.scope.emit(relax.op.split(patches, groups, 0))
        products = [
            self.scope.emit(
                relax.op.matmul(
                    self.scope.emit(relax.op.reshape(parts[index], [*places, depth])),
                    constant(np.ascontiguousarray(matrix)),
                )
            )
            for index, matrix in enumerate(matrices)
        ]
        return self._first(relax.op.concat(products, rank - 1), rank)

    def _transposed(self, call: relax.Call) -> relax.Expr | None:
        """A transposed convolution in which each input position becomes one window."""
        attrs, (data, weights) = call.attrs, call.args
        known, names = array_of(weights), (attrs.data_layout, attrs.kernel_layout)
        is_plain = names == ("NCHW", "IOHW") and int(attrs.groups) == 1
        if known is None or not is_plain or static_shape(data) is not None:
            return None
        channels, outputs, *taps = known.shape
        moved = (*ints(attrs.padding), *ints(attrs.output_padding))
        if list(ints(attrs.strides)) != taps or any(moved) or str(data.ty.dtype) != "float32":
            return None
        if not isinstance(data.ty.shape, relax.ShapeExpr):
            return None
        image = self._last(data)
        if image is None:
            image = self.scope.emit(relax.op.permute_dims(data, _to_last(4)))
        matrix = constant(np.ascontiguousarray(known.reshape(channels, -1)))
        product = self.scope.emit(relax.op.matmul(image, matrix))
        places = relax.ShapeExpr([*image.ty.shape.values[:3], outputs, *taps])
        windows = self.scope.emit(relax.op.reshape(product, places))
        joined = self.scope.emit(relax.op.permute_dims(windows, [0, 1, 4, 2, 5, 3]))
        count, _, *extents = call.ty.shape.values
        last = relax.op.reshape(joined, relax.ShapeExpr([count, *extents, outputs]))
        return self._first(last, 4)


def _places(
    extents: Sequence[Any],
    taps: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
) -> list[Any]:
    """The spatial extents of a convolution's result; `pads` before all axes, then after them."""
    return [
        simplified(tirx.floordiv(a + extent + b - reach * (tap - 1) - 1, step) + 1)
        for extent, tap, step, reach, a, b in zip(
            extents, taps, strides, dilation, pads[: len(taps)], pads[len(taps) :]
        )
    ]


def _patches(
    image: te.Tensor,
    taps: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: tuple[int, ...],
    groups: int = 1,
) -> te.Tensor:
    """image (n, *extents, C), zero-padded, -> (n, *positions, kernel positions, C).

    Several groups of channels come first: (groups, n, *positions, kernel positions, C / groups).
    """
    count, *extents, channels = image.shape
    channels = channels // groups
    before, after = pads[: len(taps)], pads[len(taps) :]
    places = _places(extents, taps, strides, dilation, pads)

    def element(*index: Any) -> Any:
        group = index[0] if groups > 1 else 0
        n, *place, tap, c = index[1:] if groups > 1 else index
        c = group * channels + c
        own = []
        for size in reversed(taps):
            own.append(tap % size)
            tap = tap // size
        at = [
            p * step + k * reach - a
            for p, step, k, reach, a in zip(place, strides, own[::-1], dilation, before)
        ]
        inside = [
            condition
            for where, extent, a, b in zip(at, extents, before, after)
            for condition in [where >= 0] * bool(a) + [where < extent] * bool(b)
        ]
        if not inside:
            return image(n, *at, c)
        zero = tirx.const(0, image.dtype)
        return tirx.if_then_else(tirx.all(*inside), image(n, *at, c), zero)

    shape = (count, *places, math.prod(taps), channels)
    return te.compute((groups, *shape) if groups > 1 else shape, element, name="patches")
