"""Lower quantize/dequantize networks to integer arithmetic on CPUs.

    before   x1 = dequantize(x, sx, zx)              x uint8, w int8, both as float32
             y1 = conv2d(x1, dequantize(w, sw, 0))
             y2 = relu(y1 + b)
             y = quantize(y2, sy, zy)

    after    a = conv2d(pad(x, zx), w)               sums of products in int32
             t = a + (round(b / (sx sw)) - zx sum(w))      by channel, known now
             y = clip(round(t * (sx sw / sy)) + zy)  after the convolution, in its kernel

1. Operators that move elements, or take the maximum, run before a tensor is dequantized instead
   of after it; a quantize that undoes a dequantize is removed.
2. Convolutions and matmuls of quantized tensors with quantized constants become uint8 by int8
   sums of products: zero points, biases and scales are folded into one addition and one
   multiplication. int8 tensors are shifted by 128. Weights that do not fit int8 are shifted, and
   the sum of the data compensates. Integer multiplications with zero points (MatMulInteger,
   ConvInteger, Relay's `qnn.conv2d`) take the same path.
3. Other readers of a dequantized tensor get separate dequantize arithmetic, fused with the reader.

Rounding is that of onnxruntime: products of scales in float32, halves to even.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
from tvm import relax

from schedules.x86.machine.dot_product import BYTES

from ...ir.constants import array_of, constant, dtype_of, static_shape
from ...ir.convert_layout import TO_FIRST, TO_LAST
from ...ir.op_dialect import RELAX
from ...ir.op_facts import facts_named
from ...ir.rewrite import rewrite_calls
from .int8_dynamic_matmul import product_of_both
from .qdq_algebra import (
    BYTE_TYPES,
    MOST_INT32,
    Arithmetic,
    Quantized,
    QuantizedRule,
    Readers,
    along,
    dequantized_as,
    is_mean,
    place_of,
    real,
    rounded,
    scaled,
    sum_of,
    values_of,
)

Zero: TypeAlias = int | relax.Expr  # zero point; an expression is int32 at run time

_SHIFT = 128  # from int8 to uint8
# Tolerances for rounding a bias to a multiple of the sums' unit: absolute, and relative.
_NEAR, _RELATIVELY_NEAR = 1e-3, 1e-6


def compute_on_integers(mod: tvm.IRModule, name: str) -> tuple[tvm.IRModule, list[str]]:
    """Rewrite function `name`; return notes on quantized operators that stay in floating point."""
    notes: list[str] = []
    for rule in (lambda: _Integers(notes), Readers, Arithmetic):
        mod = rewrite_calls(mod, rule, [name])
    return mod, notes


class _Weights(NamedTuple):
    """int32 integers minus their zero points, and scales: a scalar, or one per index of an axis."""

    values: np.ndarray
    scale: np.ndarray
    axis: int


class _Integers(QuantizedRule):
    """Moves dequantization after operators that work on integers, and emits integer products."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes
        self._shifted: dict[Any, relax.Expr] = {}

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if facts_named(name).selects:
            return self._moved(call)
        rule = _RULES.get(name)
        return None if rule is None or static_shape(call) is None else rule(self, call)

    def _moved(self, call: relax.Call) -> relax.Expr | None:
        """Apply the call to the integers if all elements share one scale and zero point."""
        given = self.dequantized(call.args[0])
        if given is None or not given.is_whole or dtype_of(given.data) not in BYTE_TYPES:
            return None
        if self.name(call) != "take" and array_of(self.scope.definition(given.data)) is not None:
            return None
        moved = self.scope.emit(RELAX.again(call, [given.data, *call.args[1:]]))
        return dequantized_as(given, moved)

    def concat(self, call: relax.Call) -> relax.Expr | None:
        """Concatenate tensors with the same scale and zero point."""
        fields = self.scope.definition(call.args[0])
        if not isinstance(fields, relax.Tuple):
            return None
        parts = [self.dequantized(field) for field in fields.fields]
        first = parts[0]
        if first is None or not first.is_whole:
            return None
        data = [part.data for part in parts if part is not None and part.alike(first)]
        if len(data) < len(parts):
            return None
        return dequantized_as(first, self.scope.emit(RELAX.again(call, [relax.Tuple(data)])))

    def mean(self, call: relax.Call) -> relax.Expr | None:
        """Average integers, which is exact, before applying the scale."""
        given = self.dequantized(call.args[0])
        if given is None or not given.is_whole or not is_mean(call):
            return None
        whole = self.scope.emit(relax.op.astype(given.data, "float32"))
        mean = self.scope.emit(RELAX.again(call, [whole, *call.args[1:]]))
        return real(mean, given)

    def avg_pool2d(self, call: relax.Call) -> relax.Expr | None:
        """Sum windows with a depthwise convolution by ones, and divide by the element counts."""
        given, shape, attrs = self.dequantized(call.args[0]), static_shape(call.args[0]), call.attrs
        layouts = {str(attrs.layout), str(attrs.out_layout or attrs.layout)}
        if given is None or not given.is_whole or shape is None or layouts != {"NCHW"}:
            return self.mean(call)
        if bool(attrs.ceil_mode) or dtype_of(given.data) not in BYTE_TYPES or 0 in shape:
            return self.mean(call)
        top, left, bottom, right = (int(side) for side in attrs.padding)
        is_padded = any((top, left, bottom, right))
        if is_padded and bool(attrs.count_include_pad):
            return None
        data, zero = self._unsigned(given)
        if is_padded:
            data = self._padded(data, [0, 0, 0, 0, top, bottom, left, right], 0)
        taps, channels = [int(extent) for extent in attrs.pool_size], shape[1]
        ones = np.ones((channels, 1, *taps), "int8")
        sums = relax.op.nn.conv2d(
            data, constant(ones), attrs.strides, 0, attrs.dilation, channels, "NCHW", "OIHW",
            "NCHW", "int32",
        )  # fmt: skip
        total = self.scope.emit(sums)
        count = _met_by_windows(call, shape[2:], static_shape(total) or ())
        shifted = relax.op.add(total, constant((-zero * count).astype("int32")))
        return scaled(self.scope, shifted, np.asarray(given.scale / count, "float32"))

    # --- sums of products -----------------------------------------------------------------

    def conv2d(self, call: relax.Call) -> relax.Expr | None:
        """Convolve images in NCHW, or in NHWC, which are permuted."""
        attrs = call.attrs
        layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
        if layout not in ("NCHW", "NHWC") or str(attrs.out_layout or layout) != layout:
            return None
        if sorted(kernel) != sorted("OIHW"):
            return None
        top, left, bottom, right = (int(side) for side in attrs.padding)
        is_padded, is_last = any((top, left, bottom, right)), layout == "NHWC"

        def product(data: relax.Expr, zero: Zero, filters: np.ndarray) -> relax.Expr:
            if is_last:
                data = self.scope.emit(relax.op.permute_dims(data, list(TO_FIRST)))
            if is_padded:
                data = self._padded(data, [0, 0, 0, 0, top, bottom, left, right], zero)
            filters = filters.transpose([kernel.index(axis) for axis in "OIHW"])
            sums = relax.op.nn.conv2d(
                data, constant(np.ascontiguousarray(filters)), attrs.strides, 0, attrs.dilation,
                int(attrs.groups), "NCHW", "OIHW", "NCHW", "int32",
            )  # fmt: skip
            return relax.op.permute_dims(self.scope.emit(sums), list(TO_LAST)) if is_last else sums

        axis = kernel.index("O")
        summed = tuple(place for place in range(4) if place != axis)
        columns = (-1,) if is_last else (-1, 1, 1)
        return self._product(call, axis, summed, columns, product)

    def _padded(self, data: relax.Expr, widths: list[int], zero: Zero) -> relax.Expr:
        """Pad uint8 images with a zero point, which may be known only at run time."""
        known = zero if isinstance(zero, int) else 0
        padded = self.scope.emit(relax.op.nn.pad(data, widths, "constant", known))
        if isinstance(zero, int):
            return padded
        height, width = (static_shape(data) or ())[2:]
        is_inside = np.pad(np.ones((height, width), "bool"), (widths[4:6], widths[6:]))
        beyond = self.scope.emit(relax.op.astype(zero, "uint8"))
        return self.scope.emit(relax.op.where(constant(is_inside), padded, beyond))

    def matmul(self, call: relax.Call) -> relax.Expr | None:
        """Multiply rows by a constant matrix."""
        if any(len(static_shape(arg) or ()) < 2 for arg in call.args):
            return None
        if math.prod((static_shape(call.args[1]) or ())[:-2]) != 1:
            return self._product_of_both(call)

        def product(data: relax.Expr, _: Zero, matrix: np.ndarray) -> relax.Expr:
            matrix = matrix.reshape(matrix.shape[-2:])
            beyond = -len(matrix) % BYTES
            if beyond:
                widths = [0] * (2 * len(static_shape(data) or ()) - 1)
                data = self.scope.emit(relax.op.nn.pad(data, [*widths, beyond]))
                matrix = np.pad(matrix, ((0, beyond), (0, 0)))
            return relax.op.matmul(data, constant(matrix), "int32")

        return self._product(call, -1, (-2,), (-1,), product)

    def _product_of_both(self, call: relax.Call) -> relax.Expr | None:
        """Multiply quantized stacks of matrices that are both computed at run time."""
        left, right = (self.dequantized(arg) for arg in call.args)
        if left is None or right is None:
            return None
        made = None
        if dtype_of(left.data) in BYTE_TYPES and left.is_whole:
            data, zero = self._unsigned(left)
            rows = replace(left, data=data, zero=np.asarray(zero, "int32"))
            made = product_of_both(self, call, rows, right)
        if made is None:
            return self._stays(call, "its operands are not bytes of one scale each")
        return made

    def _product(
        self,
        call: relax.Call,
        axis: int,
        summed: tuple[int, ...],
        columns: tuple[int, ...],
        product: Callable[[relax.Expr, Zero, np.ndarray], relax.Expr],
    ) -> relax.Expr | None:
        """A product of quantized tensors, or of integers less their zero points.

        Scales of the weights may go along `axis`; `summed` are the other axes. `columns`: shape,
        broadcast against the result, of one number per position of that axis.
        """
        data, weight = call.args
        is_integer = dtype_of(call) == "int32"
        x = self._centerd(data) if is_integer else self.dequantized(data)
        w = self._weights(weight)
        if x is None or w is None:
            which = "weights" if w is None else "data"
            is_wide = is_integer and dtype_of(data) == "int32"
            missing = x is not None or (w is not None and (is_wide or not is_integer))
            why = f"its {which} are not quantized with known numbers"
            return self._stays(call, why) if missing else None
        if dtype_of(x.data) not in BYTE_TYPES or not x.is_whole:
            return self._stays(call, f"its data are {dtype_of(x.data)}, or not of one scale")
        if w.scale.ndim and w.axis != axis % w.values.ndim:
            return self._stays(call, "the scales of its weights go along an axis that is summed")
        shift = _shift_to_bytes(w.values, summed)
        ones = _adding_all(call, w.values, axis) if np.any(shift) else None
        if shift is None or (ones is None and np.any(shift)):
            return self._stays(call, "its weights less their zero point do not fit int8")
        small = np.ascontiguousarray((w.values - shift).astype("int8"))

        def summed_up(data: relax.Expr, zero: Zero) -> relax.Expr:
            total = self.scope.emit(product(data, zero, small))
            if ones is None:
                return total
            everything = self.scope.emit(product(data, zero, ones))
            beyond = relax.op.multiply(everything, constant(shift.reshape(columns)))
            return self.scope.emit(relax.op.add(total, self.scope.emit(beyond)))

        sums = w.values.astype("int64").sum(axis=summed).reshape(columns)
        late = self._run_time_zero(data)
        if late is not None:
            if dtype_of(x.data) != "uint8":
                return self._stays(call, "int8 data have a zero point that is computed at run time")
            zeros = relax.op.multiply(late, constant(sums.astype("int32")))
            return relax.op.subtract(summed_up(x.data, late), zeros)
        unsigned, zero = self._unsigned(x)
        offset = -zero * sums
        if np.abs(offset).max(initial=0) >= MOST_INT32:
            return self._stays(call, "its sums do not fit int32")
        shifted = relax.op.add(summed_up(unsigned, zero), constant(offset.astype("int32")))
        if is_integer:
            return shifted
        factor = np.asarray(x.scale * w.scale, "float32")
        return scaled(self.scope, shifted, factor.reshape(columns) if factor.ndim else factor)

    def _centerd(self, expr: relax.Expr) -> Quantized | None:
        """Bytes of which `expr` is the int32 form minus a zero point; 0 here if run-time."""
        zero = np.zeros((), "int32")
        less = self.scope.match_call(expr, "subtract")
        if less is not None:
            known = array_of(self.scope.definition(less.args[1]))
            if known is not None and known.size == 1:
                zero = known.reshape(())
            elif self._run_time_zero(expr) is None:
                return None
            expr = less.args[0]
        cast = self.scope.match_call(expr, "astype")
        if cast is None or dtype_of(cast.args[0]) not in BYTE_TYPES:
            return None
        return Quantized(cast.args[0], np.ones((), "float32"), zero, 0)

    def _run_time_zero(self, expr: relax.Expr) -> relax.Expr | None:
        """The zero point that is computed at run time and subtracted from integers."""
        less = self.scope.match_call(expr, "subtract")
        if less is None or dtype_of(less) != "int32" or static_shape(less.args[1]) != ():
            return None
        return None if array_of(self.scope.definition(less.args[1])) is not None else less.args[1]

    def _weights(self, expr: relax.Expr) -> _Weights | None:
        """Constant integers minus their zero points."""
        value = self.scope.definition(expr)
        if self.name(value) == "permute_dims":
            inner = self._weights(value.args[0])
            if inner is None:
                return None
            given = value.attrs.axes
            order = list(range(inner.values.ndim))[::-1] if given is None else list(map(int, given))
            return _Weights(inner.values.transpose(order), inner.scale, order.index(inner.axis))
        if self.name(value) == "reshape":
            inner, shape = self._weights(value.args[0]), static_shape(value)
            axis = None if inner is None or shape is None else _kept_axis(inner, shape)
            if inner is None or shape is None or axis is None:
                return None
            return _Weights(inner.values.reshape(shape), inner.scale, axis)
        known = array_of(value)
        if known is not None:
            is_integer = known.dtype.kind in "iu" and known.ndim > 0
            return _Weights(known, np.ones((), "float32"), 0) if is_integer else None
        given = self.dequantized(expr)
        integers = None if given is None else array_of(self.scope.definition(given.data))
        if given is None or integers is None or dtype_of(given.data) not in BYTE_TYPES:
            return None
        centerd = integers.astype("int32") - along(given.zero, integers.ndim, given.axis)
        return _Weights(centerd, given.scale, given.axis)

    def _unsigned(self, given: Quantized) -> tuple[relax.Expr, int]:
        """The integers as uint8, and their zero point."""
        data = given.data
        if dtype_of(data) == "uint8":
            return data, int(given.zero)
        if data not in self._shifted:
            quantize = self.scope.match_call(data, "quantize")
            own = None if quantize is None else self.numbers(quantize, data)
            if quantize is not None and own is not None and own.is_whole:
                zero = relax.const(int(own.zero) + _SHIFT, "uint8")
                made = relax.op.quantize(quantize.args[0], quantize.args[1], zero, 0, "uint8")
            else:
                wide = relax.op.add(relax.op.astype(data, "int32"), relax.const(_SHIFT, "int32"))
                made = relax.op.astype(wide, "uint8")
            self._shifted[data] = self.scope.emit(made)
        return self._shifted[data], int(given.zero) + _SHIFT

    def add(self, call: relax.Call) -> relax.Expr | None:
        """Add a bias that is a multiple of the unit of the sums."""
        for value, other in (call.args, call.args[::-1]):
            sums = sum_of(self, value)
            bias = None if sums is None else self._value(other)
            if sums is None or bias is None or bias.ndim > len(static_shape(call) or ()):
                continue
            units = np.asarray(bias, "float64") / sums.scale
            whole = np.rint(units)
            offset = sums.offset + whole
            near = np.maximum(_NEAR, _RELATIVELY_NEAR * np.abs(whole))
            if np.all(np.abs(units - whole) <= near) and np.all(np.abs(offset) < MOST_INT32):
                shifted = relax.op.add(sums.total, constant(offset.astype("int32")))
                return scaled(self.scope, shifted, sums.scale)
        return None

    def _value(self, expr: relax.Expr) -> np.ndarray | None:
        """The value of a constant, or of one that is dequantized and reshaped."""
        value = self.scope.definition(expr)
        if self.name(value) in ("reshape", "expand_dims"):
            inner, shape = self._value(value.args[0]), static_shape(value)
            return None if inner is None or shape is None else inner.reshape(shape)
        known = array_of(value)
        if known is not None:
            return known if known.dtype == "float32" else None
        given = self.dequantized(expr)
        integers = None if given is None else array_of(self.scope.definition(given.data))
        return None if given is None or integers is None else values_of(integers, given)

    def quantize(self, call: relax.Call) -> relax.Expr | None:
        """Drop the call, requantize sums with one multiplication, or leave it for later (None)."""
        own = self.numbers(call, call.args[0])
        if own is None or dtype_of(call) not in BYTE_TYPES:
            return None
        given = self.dequantized(call.args[0])
        result = Quantized(relax.Var("result", call.ty), own.scale, own.zero, own.axis)
        if given is not None and given.alike(result):
            return given.data
        if not own.is_whole:
            return None
        joined = self.scope.match_call(call.args[0], "concat")
        parts = None if joined is None else self.scope.definition(joined.args[0])
        if isinstance(parts, relax.Tuple) and self.scope.used_once(call.args[0]):
            return self._quantized_parts(call, joined, parts)
        value, low, high = self._within(call.args[0], own, dtype_of(call))
        sums = sum_of(self, value)
        factor = None if sums is None else np.asarray(sums.scale / own.scale, "float32")
        if sums is None or factor is None or not np.all(factor < 1):  # otherwise int32 may overflow
            return None
        shifted = relax.op.add(sums.total, constant(sums.offset.astype("int32")))
        value = scaled(self.scope, shifted, factor)
        return rounded(self.scope, value, int(own.zero), low, high, dtype_of(call))

    def _within(self, value: relax.Expr, own: Quantized, dtype: str) -> tuple[relax.Expr, int, int]:
        """A value before clipping, and bounds of the integers: quantization is monotonic."""
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        while True:
            inner = self.scope.definition(value)
            if self.name(inner) == "nn.relu":
                bounds = [0.0, math.inf]
            elif self.name(inner) == "clip":
                bounds = [float(bound.value) for bound in inner.args[1:]]
            else:
                return value, low, high
            least, most = (place_of(bound, own, low, high) for bound in bounds)
            low, high, value = max(low, least), min(high, most), inner.args[0]

    def _quantized_parts(
        self, call: relax.Call, joined: relax.Call, parts: relax.Tuple
    ) -> relax.Expr:
        """Quantize each part at its producer, and then concatenate."""
        made = []
        for part in parts.fields:
            again = self.scope.builder.normalize(RELAX.again(call, [part, *call.args[1:]]))
            less = self.quantize(again)
            made.append(self.scope.emit(again if less is None else less))
        return RELAX.again(joined, [relax.Tuple(made)])

    def _stays(self, call: relax.Call, why: str) -> Any:
        """Note why a call stays in floating point; returns None."""
        shapes = " by ".join(str(list(static_shape(arg) or ())) for arg in call.args)
        self.notes.append(f"{self.name(call)} of {shapes} has no 8-bit kernel: {why}")


def _kept_axis(weights: _Weights, shape: Sequence[int]) -> int | None:
    """Position of the scales' axis after reshaping the weights; None if it is no longer an axis."""
    if weights.scale.ndim == 0:
        return 0
    old, axis = weights.values.shape, weights.axis
    before = math.prod(old[:axis])
    places = range(len(shape))
    same = (i for i in places if shape[i] == old[axis] and math.prod(shape[:i]) == before)
    return next(same, None)


def _met_by_windows(pool: relax.Call, size: Sequence[int], result: Sequence[int]) -> np.ndarray:
    """Number of image elements in each window: a scalar, or one per position."""
    attrs, met = pool.attrs, []
    for axis in range(2):
        begins = np.arange(result[2 + axis]) * int(attrs.strides[axis]) - int(attrs.padding[axis])
        taps = np.arange(int(attrs.pool_size[axis])) * int(attrs.dilation[axis])
        at = begins[:, np.newaxis] + taps
        met.append(((at >= 0) & (at < size[axis])).sum(1))
    count = np.outer(*met)
    return count.reshape(-1)[0] if np.all(count == count[0, 0]) else count


def _shift_to_bytes(values: np.ndarray, summed: tuple[int, ...]) -> np.ndarray | None:
    """Offsets, by output channel, that fit weights to int8; None if a channel spans too much."""
    wide = values.astype("int64")
    least, most = (each(wide, axis=summed, keepdims=True, initial=0) for each in (np.min, np.max))
    if np.any(most - least > 255):
        return None
    return np.where((least < -128) | (most > 127), least + 128, 0).astype("int32")


def _adding_all(call: relax.Call, values: np.ndarray, axis: int) -> np.ndarray | None:
    """int8 weights that sum each channel's inputs: for one channel or depthwise; None otherwise."""
    groups = int(call.attrs.groups) if hasattr(call.attrs, "groups") else 1
    ones = np.ones_like(values, "int8")
    if groups == values.shape[axis]:
        return ones
    return np.take(ones, [0], axis) if groups == 1 else None


_RULES: dict[str, Callable[[_Integers, relax.Call], relax.Expr | None]] = {
    "add": _Integers.add,
    "concat": _Integers.concat,
    "mean": _Integers.mean,
    "nn.adaptive_avg_pool2d": _Integers.mean,
    "nn.avg_pool2d": _Integers.avg_pool2d,
    "nn.conv2d": _Integers.conv2d,
    "matmul": _Integers.matmul,
    "quantize": _Integers.quantize,
}
