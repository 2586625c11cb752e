"""Quantization, dequantization and requantization; q represents (q - zero_point) * scale."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ....errors import RelayTypeError
from ....ir.constants import array_of, static_shape
from ....support.scoped_context import register_lowering_option, scoped_value
from .. import layout_rules, quantization
from ..nn.layouts import spread
from ..op_def import ELEMENTWISE
from ..registry import builder, operator
from ..shapes import axis_of, dtype, extents, is_float, number, rank
from ..te_op import kernel
from ..tensor import broadcasting, half_away, round
from ..transform import cast_to
from ..typed_relax import op


@dataclass(frozen=True)
class _Config:
    rounding: str = "UPWARD"
    compute_dtype: str = "int64"


_DEFAULT = _Config()
_CONFIG: contextvars.ContextVar[_Config] = contextvars.ContextVar("requantize", default=_DEFAULT)
register_lowering_option(_CONFIG.get, _DEFAULT)

ROUNDINGS = ("UPWARD", "TONEAREST")
COMPUTE_DTYPES = ("int64", "float32", "float64")


@builder("qnn.requantize_config")
@contextlib.contextmanager
def requantize_config(**options: str) -> Iterator[None]:
    """Default rounding and compute_dtype of `requantize`.

    Rounding is "UPWARD" (half up) or "TONEAREST" (half away from zero). The multiplier is a
    fixed-point number with compute_dtype "int64", else a float.
    """
    for name, allowed in (("rounding", ROUNDINGS), ("compute_dtype", COMPUTE_DTYPES)):
        if options.get(name, allowed[0]) not in allowed:
            raise RelayTypeError(f"{name} must be one of {', '.join(allowed)}")
    with scoped_value(_CONFIG, replace(_CONFIG.get(), **options)):
        yield


def limits(name: str) -> tuple[int, int]:
    """Minimum and maximum of an integer dtype."""
    info = np.iinfo(name)
    return int(info.min), int(info.max)


def saturated(data: relax.Expr, name: str) -> relax.Expr:
    """Clip to the range of an integer dtype and cast to it."""
    if dtype(data) == name:
        return data
    low, high = limits(name)
    if not is_float(dtype(data)):
        own = limits(dtype(data))
        low, high = max(low, own[0]), min(high, own[1])
    bounds = (relax.prim_value(bound, dtype(data)) for bound in (low, high))
    return cast_to(op.clip(data, *bounds), name)


def along(value: relax.Expr, data: relax.Expr, axis: int) -> relax.Expr:
    """Reshape a scalar, or a vector along an axis of `data`, to broadcast with it."""
    shape = extents(value)
    if not shape:
        return value
    if len(shape) > 1:
        raise RelayTypeError(f"a scale or zero point has {len(shape)} dimensions")
    if shape[0] == 1:
        return op.reshape(value, [])
    return spread(value, axis_of(axis, rank(data)), rank(data))


def check_numbers(
    name: str,
    scale: relax.Expr,
    zero_point: relax.Expr,
    data: relax.Expr | None = None,
    axis: int = -1,
) -> None:
    """Reject constant scales or zero points that are invalid for the integer dtype `name`.

    Raises RelayTypeError: a scale is 0, negative, infinite or NaN, a zero point is out of range, or
    the length of a vector differs from the extent of its axis.
    """
    for what, value in (("scales", scale), ("zero points", zero_point)):
        own, shape = static_shape(value), None if data is None else static_shape(data)
        count, length = math.prod(own or ()), shape[axis] if shape else 1
        if shape is not None and count not in (1, length):
            raise RelayTypeError(f"there are {count} {what} along an axis of {length}")
    scales, zeros = array_of(scale), array_of(zero_point)
    if scales is not None and not np.all(np.isfinite(scales) & (scales > 0)):
        raise RelayTypeError("a scale must be a finite number above 0")
    if zeros is None or is_float(name):
        return
    low, high = limits(name)
    if np.any((zeros < low) | (zeros > high)):
        raise RelayTypeError(f"a zero point of {name} must be from {low} to {high}")


def is_zero(value: relax.Expr) -> bool:
    """Whether a zero point is a constant 0."""
    array = array_of(value)
    return array is not None and not np.any(array)


def centerd(data: relax.Expr, zero_point: relax.Expr, axis: int, name: str) -> relax.Expr:
    """data - zero_point in dtype `name`."""
    wide = cast_to(data, name)
    if is_zero(zero_point):
        return wide
    return broadcasting(op.subtract, wide, along(cast_to(zero_point, name), data, axis))


def with_zero_point(
    value: relax.Expr, zero_point: relax.Expr, data: relax.Expr, axis: int
) -> relax.Expr:
    """value + zero_point, which is a scalar or a vector along an axis of `data`."""
    if is_zero(zero_point):
        return value
    zero = along(cast_to(zero_point, dtype(value)), data, axis)
    return broadcasting(op.add, value, zero)


@operator("qnn.quantize", 3, pattern=ELEMENTWISE, quantized=quantization.quantize)
def quantize(
    data: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
    out_dtype: str = "int8",
) -> relax.Expr:
    """round(data / scale) + zero_point, clipped to the range of `out_dtype`."""
    check_numbers(out_dtype, output_scale, output_zero_point)
    scale = along(cast_to(output_scale, dtype(data)), data, axis)
    value = round(broadcasting(op.divide, data, scale))
    return _saturated_floats(with_zero_point(value, output_zero_point, data, axis), out_dtype)


def _saturate_compute(data: te.Tensor, dtype: str) -> te.Tensor:
    """Convert floats to integers with saturation."""
    low, high = limits(dtype)
    top = tirx.const(float(high), data.dtype)

    def value(*at: Any) -> Any:
        x = data(*at)
        fits = tirx.Cast(dtype, tirx.max(x, tirx.const(float(low), data.dtype)))
        return tirx.Select(x >= top, tirx.const(high, dtype), fits)

    return te.compute(data.shape, value, name="saturate", tag=topi.tag.ELEMWISE)


_saturate_kernel = kernel("qnn.saturate", _saturate_compute)


def _saturated_floats(data: relax.Expr, name: str) -> relax.Expr:
    return _saturate_kernel(data, dtype=name)


@operator("qnn.dequantize", 3, pattern=ELEMENTWISE, quantized=quantization.dequantize)
def dequantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    axis: int = -1,
    out_dtype: str = "float32",
) -> relax.Expr:
    """(data - zero_point) * scale."""
    check_numbers(dtype(data), input_scale, input_zero_point)
    name = out_dtype or "float32"
    wide = dtype(data) if is_float(dtype(data)) else "int32"
    value = cast_to(centerd(data, input_zero_point, axis, wide), name)
    return broadcasting(op.multiply, value, along(cast_to(input_scale, name), data, axis))


@operator("qnn.requantize", 5, pattern=ELEMENTWISE, layout=layout_rules.requantize)
def requantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> relax.Expr:
    """Convert to another scale and zero point; input scales may be per axis."""
    config = _CONFIG.get()
    how = config.rounding if rounding in ("None", "", None) else rounding
    kind = config.compute_dtype if compute_dtype in ("None", "", None) else compute_dtype
    if how not in ROUNDINGS or kind not in COMPUTE_DTYPES:
        raise RelayTypeError(f"rounding {how!r} or compute_dtype {kind!r} is unknown")
    scales = array_of(input_scale), array_of(output_scale)
    name = out_dtype or "int8"
    check_numbers(dtype(data), input_scale, input_zero_point, data, axis)
    check_numbers(name, output_scale, output_zero_point, data, axis)
    if kind != "int64" or any(scale is None for scale in scales):
        wide = kind if is_float(kind) else "float32"
        return _rescaled_floats(
            data, input_scale, input_zero_point, output_scale, output_zero_point, axis, how, wide,
            name,
        )  # fmt: skip
    factors = scales[0].astype("float64").ravel() / scales[1].astype("float64").ravel()  # type: ignore[union-attr]
    value = centerd(data, input_zero_point, axis, "int64")
    value = _rescaled_integers(value, factors, axis, how)
    return saturated(with_zero_point(value, output_zero_point, data, axis), name)


def _rescaled_floats(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int,
    rounding: str,
    wide: str,
    out_dtype: str,
) -> relax.Expr:
    """Requantize with a multiplier of float dtype `wide`."""
    value = cast_to(centerd(data, input_zero_point, axis, "int32"), wide)
    factor = broadcasting(op.divide, cast_to(input_scale, wide), cast_to(output_scale, wide))
    value = broadcasting(op.multiply, value, along(factor, data, axis))
    value = with_zero_point(value, output_zero_point, data, axis)
    upward = rounding == "UPWARD"
    value = op.floor(op.add(value, number(0.5, wide))) if upward else round(value)
    return _saturated_floats(value, out_dtype)


def fixed_point(factor: float) -> tuple[int, int]:
    """Convert `factor` to m * 2**(shift - 31), m of 31 bits (gemmlowp: Jacob et al., 2018)."""
    if factor == 0:
        return 0, 0
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        return multiplier // 2, exponent + 1
    return multiplier, exponent


def _rescaled_integers(
    value: relax.Expr, factors: np.ndarray, axis: int, rounding: str
) -> relax.Expr:
    """Multiply int64 values by scalar or per-axis factors and round."""
    if np.all(factors == 1.0):
        return value
    multipliers, exponents = np.array([fixed_point(float(each)) for each in factors], "int64").T
    left, right = np.maximum(exponents, 0), 31 - np.minimum(exponents, 0)

    def spread_out(column: np.ndarray) -> relax.Expr:
        return along(relax.const(column, "int64"), value, axis)

    product = broadcasting(op.multiply, value, spread_out(multipliers << left))
    half = np.int64(1) << (right - 1)
    rounded = broadcasting(op.add, product, spread_out(half))
    if rounding != "UPWARD":  # negative halves round down
        sign = broadcasting(op.right_shift, product, number(63, "int64"))
        rounded = broadcasting(op.add, rounded, sign)
    return broadcasting(op.right_shift, rounded, spread_out(right))


def _by_code(code: te.Tensor, values: dict[int, Any], otherwise: Any) -> Any:
    """Select the value for the dtype with number `code`."""
    for number_, value in values.items():
        otherwise = tirx.if_then_else(code() == number_, value, otherwise)
    return otherwise


def _simulated_quantize_compute(
    data: te.Tensor, code: te.Tensor, scale: te.Tensor, zero_point: te.Tensor, axis: int
) -> te.Tensor:
    """Quantize floats to float values of the dtype with number `code`."""

    def value(*at: Any) -> Any:
        x, name = data(*at), data.dtype
        scaled = x / scale(tirx.floormod(at[axis], scale.shape[0]))
        zero = zero_point(tirx.floormod(at[axis], zero_point.shape[0])).astype(name)
        shifted = half_away(scaled, str(name)) + zero
        limited = {}
        for dtype_, number_ in _DTYPE_CODES.items():
            if dtype_ != "disable":
                low, high = (tirx.const(float(bound), name) for bound in limits(dtype_))
                limited[number_] = tirx.max(tirx.min(shifted, high), low)
        return _by_code(code, limited, x)

    return te.compute(data.shape, value, name="simulated_quantize")


def _simulated_dequantize_compute(
    data: te.Tensor, code: te.Tensor, scale: te.Tensor, zero_point: te.Tensor, axis: int
) -> te.Tensor:
    """Dequantize float values of the dtype with number `code`."""

    def value(*at: Any) -> Any:
        zero = zero_point(tirx.floormod(at[axis], zero_point.shape[0])).astype(data.dtype)
        real = (data(*at) - zero) * scale(tirx.floormod(at[axis], scale.shape[0]))
        return _by_code(code, {0: data(*at)}, real)

    return te.compute(data.shape, value, name="simulated_dequantize")


_simulated_quantize = kernel("qnn.simulated_quantize", _simulated_quantize_compute)
_simulated_dequantize = kernel("qnn.simulated_dequantize", _simulated_dequantize_compute)

_DTYPE_CODES = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}


def _simulated(name: str, compute: Any, what: str) -> Any:
    def call(
        data: relax.Expr,
        dtype_code: relax.Expr,
        scale: relax.Expr,
        zero_point: relax.Expr,
        axis: int = -1,
    ) -> relax.Expr:
        vectors = [op.reshape(each, [-1]) for each in (scale, zero_point)]
        code = op.reshape(cast_to(dtype_code, "int32"), [])
        return compute(data, code, *vectors, axis=axis_of(axis, rank(data)))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{what} in floats, with the dtype as a number that is known at run time."
    return operator(f"qnn.{name}", 4, ignored=("out_dtype",), how="TE", pattern=ELEMENTWISE)(call)


_simulated_quantize_call = _simulated("simulated_quantize", _simulated_quantize, "Quantization")
_simulated_dequantize_call = _simulated(
    "simulated_dequantize", _simulated_dequantize, "Dequantization"
)


def _code(value: Any) -> relax.Expr:
    if isinstance(value, str):
        value = relax.const(_DTYPE_CODES[value], "int32")
    return value


@builder("qnn.simulated_quantize")
def simulated_quantize(
    data: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
    out_dtype: Any = "int8",
) -> relax.Expr:
    """Quantize to float values; `out_dtype` is a name or a run-time code."""
    return _simulated_quantize_call(data, _code(out_dtype), output_scale, output_zero_point, axis)


@builder("qnn.simulated_dequantize")
def simulated_dequantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    axis: int = -1,
    in_dtype: Any = "int8",
) -> relax.Expr:
    """Dequantize quantized values stored as floats."""
    return _simulated_dequantize_call(data, _code(in_dtype), input_scale, input_zero_point, axis)
