"""Element-wise quantized operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ....errors import RelayTypeError
from ....ir.constants import array_of
from ...type_infer import infer_type
from .. import layout_rules, tensor
from ..nn.activation import leaky_relu as plain_leaky_relu
from ..nn.activation import softmax as plain_softmax
from ..op_def import ELEMENTWISE, INJECTIVE
from ..registry import operator
from ..shapes import axis_of, dtype, number, rank, tuple_fields
from ..tensor import broadcasting
from ..transform import cast_to
from ..typed_relax import op
from .requantization import along, centerd, dequantize, is_zero, quantize, requantize, saturated


def _same(left: relax.Expr, right: relax.Expr) -> bool:
    """Whether two scales or zero points are constant and equal."""
    a, b = array_of(left), array_of(right)
    return a is not None and b is not None and np.array_equal(a, b)


def _brought(
    data: relax.Expr,
    scale: relax.Expr,
    zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int,
) -> relax.Expr:
    """Requantize `data` to the output's scale and zero point, in int32."""
    if _same(scale, output_scale) and _same(zero_point, output_zero_point):
        return cast_to(data, "int32")
    return requantize(
        data, scale, zero_point, output_scale, output_zero_point, axis, out_dtype="int32"
    )


def _sum(name: str, function: Callable[..., relax.Expr], what: str) -> Any:
    def make(
        lhs: relax.Expr,
        rhs: relax.Expr,
        lhs_scale: relax.Expr,
        lhs_zero_point: relax.Expr,
        rhs_scale: relax.Expr,
        rhs_zero_point: relax.Expr,
        output_scale: relax.Expr,
        output_zero_point: relax.Expr,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> relax.Expr:
        target = output_scale, output_zero_point
        left = _brought(lhs, lhs_scale, lhs_zero_point, *target, lhs_axis)
        right = _brought(rhs, rhs_scale, rhs_zero_point, *target, rhs_axis)
        value = broadcasting(function, left, right)
        if not is_zero(output_zero_point):
            back = op.subtract if function is op.add else op.add
            zero = along(cast_to(output_zero_point, "int32"), value, -1)
            value = broadcasting(back, value, zero)
        return saturated(value, dtype(lhs))

    doc = f"{what} of quantized tensors that broadcast, at the output's scale."
    return operator(f"qnn.{name}", 8, layout=layout_rules.quantized_broadcast, doc=doc)(make)


add = _sum("add", op.add, "Sum")
subtract = _sum("subtract", op.subtract, "Difference")


@operator("qnn.mul", 8, layout=layout_rules.quantized_broadcast)
def mul(
    lhs: relax.Expr,
    rhs: relax.Expr,
    lhs_scale: relax.Expr,
    lhs_zero_point: relax.Expr,
    rhs_scale: relax.Expr,
    rhs_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> relax.Expr:
    """Multiply quantized tensors with broadcasting; result at the output's scale."""
    left = centerd(lhs, lhs_zero_point, lhs_axis, "int32")
    right = centerd(rhs, rhs_zero_point, rhs_axis, "int32")
    product = broadcasting(op.multiply, left, right)
    arrays = array_of(lhs_scale), array_of(rhs_scale)
    if arrays[0] is not None and arrays[1] is not None:
        scale: relax.Expr = relax.const(arrays[0] * arrays[1], dtype(lhs_scale))
    else:
        scale = broadcasting(op.multiply, lhs_scale, rhs_scale)
    zero = number(0, "int32")
    return requantize(product, scale, zero, output_scale, output_zero_point, out_dtype=dtype(lhs))


@operator("qnn.concatenate", 5, pattern=INJECTIVE, layout=layout_rules.concatenate)
def concatenate(
    data: Any,
    input_scales: Any,
    input_zero_points: Any,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = 0,
) -> relax.Expr:
    """Concatenate quantized tensors along `axis` at the output's scale."""
    fields = tuple_fields(data)
    scales, zeros = tuple_fields(input_scales), tuple_fields(input_zero_points)
    if not len(fields) == len(scales) == len(zeros):
        raise RelayTypeError(
            f"{len(fields)} fields need as many scales and zero points, not {len(scales)} and "
            f"{len(zeros)}"
        )
    parts = [
        field
        if _same(scale, output_scale) and _same(zero, output_zero_point)
        else requantize(field, scale, zero, output_scale, output_zero_point, out_dtype=dtype(field))
        for field, scale, zero in zip(fields, scales, zeros)
    ]
    return op.concat(parts, axis_of(axis, rank(fields[0])))


def _through_floats(
    function: Callable[[relax.Expr], relax.Expr],
    x: relax.Expr,
    scale: relax.Expr,
    zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
) -> relax.Expr:
    """Dequantize, apply a float function, quantize."""
    value = function(dequantize(x, scale, zero_point))
    return quantize(infer_type(value), output_scale, output_zero_point, out_dtype=dtype(x))


def _unary(name: str, function: Callable[[relax.Expr], relax.Expr], what: str) -> Any:
    def make(
        x: relax.Expr,
        scale: relax.Expr,
        zero_point: relax.Expr,
        output_scale: relax.Expr,
        output_zero_point: relax.Expr,
    ) -> relax.Expr:
        return _through_floats(function, x, scale, zero_point, output_scale, output_zero_point)

    return operator(f"qnn.{name}", 5, pattern=ELEMENTWISE, doc=f"{what} of each element.")(make)


def _hardswish(x: relax.Expr) -> relax.Expr:
    """x * min(max(x + 3, 0), 6) / 6."""
    shifted = op.add(x, number(3.0, dtype(x)))
    bounded = op.clip(shifted, relax.prim_value(0.0), relax.prim_value(6.0))
    return op.divide(op.multiply(x, bounded), number(6.0, dtype(x)))


tanh = _unary("tanh", tensor.tanh, "Hyperbolic tangent")
exp = _unary("exp", tensor.exp, "Exponential")
sqrt = _unary("sqrt", tensor.sqrt, "Square root")
rsqrt = _unary("rsqrt", tensor.rsqrt, "Reciprocal of the square root")
erf = _unary("erf", tensor.erf, "Error function")
sigmoid = _unary("sigmoid", tensor.sigmoid, "Logistic function")
abs = _unary("abs", tensor.abs, "Absolute value")
log = _unary("log", tensor.log, "Natural logarithm")
hardswish = _unary("hardswish", _hardswish, "x * relu6(x + 3) / 6")


@operator("qnn.leaky_relu", 5, defaults={"alpha": 0.25})
def leaky_relu(
    x: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    alpha: float = 0.01,
) -> relax.Expr:
    """x if its real value is positive, else alpha * x."""
    return _through_floats(
        lambda value: plain_leaky_relu(value, alpha),
        x, input_scale, input_zero_point, output_scale, output_zero_point,
    )  # fmt: skip


@operator("qnn.softmax", 5)
def softmax(
    x: relax.Expr,
    scale: relax.Expr,
    zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
) -> relax.Expr:
    """Softmax of a quantized tensor's real values.

    int8 with a constant scale is computed in integers by Relay's approximation.
    """
    array = array_of(scale)
    if dtype(x) != "int8" or array is None or array.size != 1:
        return _through_floats(
            lambda value: plain_softmax(value, axis),
            x, scale, zero_point, output_scale, output_zero_point,
        )  # fmt: skip
    shares = _shift_softmax(x, float(array.ravel()[0]), axis_of(axis, rank(x)))
    return requantize(
        shares,
        relax.const(1 / 2**_SHARE_BITS, "float32"),
        number(0, "int32"),
        output_scale,
        output_zero_point,
        out_dtype="int8",
    )


_POWER_BITS = 21
_SHARE_BITS = 7


def _shift_softmax(x: relax.Expr, scale: float, axis: int) -> relax.Expr:
    """Softmax as integer powers of two, in units of 2**-7, as int32.

    e**(x * scale) is 2**(p * scale) with p = 1.0111b * x. The integer part of the exponent is a
    shift, the fraction is linear. Source: Li and Gu, "I-ViT: Integer-only Quantization for
    Efficient Vision Transformer Inference" (2023). The zero point cancels in x - max(x).
    """

    def whole(value: int) -> relax.Expr:
        return number(value, "int64")

    def do(function: Callable[..., relax.Expr], *operands: Any) -> relax.Expr:
        return infer_type(function(*operands))

    unit = whole(int(1 / scale + 0.5))
    wide = cast_to(x, "int64")
    below = do(op.subtract, wide, do(op.max, wide, [axis], True))
    half, sixteenth = (do(op.right_shift, below, whole(bits)) for bits in (1, 4))
    exponent = do(op.negative, do(op.subtract, do(op.add, below, half), sixteenth))
    shift = do(op.floor_divide, exponent, unit)
    rest = do(op.subtract, do(op.multiply, shift, unit), exponent)
    line = do(op.add, do(op.right_shift, rest, whole(1)), unit)
    up = do(op.maximum, do(op.subtract, whole(_POWER_BITS), shift), whole(0))
    power = do(op.left_shift, line, up)
    total = do(op.sum, power, [axis], True)
    factor = do(op.floor_divide, whole(2**31 - 1), total)
    share = do(op.right_shift, do(op.multiply, power, factor), whole(31 - _SHARE_BITS))
    return cast_to(share, "int32")
