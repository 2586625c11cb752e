"""Elementwise operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.constants import scalar_of, static_shape
from compiler.relay.op import registry

from ..node import Node, constant_value, dtype_of

Converter = Callable[[Node], relax.Expr]

LARGEST_FLOAT = 3.4028234663852886e38
"""Where Clip ends by default before opset 11, in all dtypes."""


def number(value: float, like: relax.Expr) -> relax.Expr:
    """A scalar constant of the dtype of `like`."""
    return relax.const(value, dtype_of(like))


def clip(node: Node) -> relax.Expr | None:
    """`relax.clip` where the bounds are known; else maximum and minimum."""
    data, dtype = node[0], node.dtype(0)
    if node.opset < 11:
        bounds = [node.attr("min", -LARGEST_FLOAT), node.attr("max", LARGEST_FLOAT)]
        if dtype == "float16":
            with np.errstate(over="ignore"):
                bounds = [float(np.float16(bound)) for bound in bounds]
    else:
        bounds = []
        for index, open_end in ((1, -math.inf), (2, math.inf)):
            bound = node.get(index)
            known = open_end if bound is None else scalar_of(bound)
            if known is None or (math.isnan(known) and dtype.startswith("float")):
                known = open_end if known is not None else math.nan
            bounds.append(known)
    low, high = bounds
    if dtype.startswith(("float", "bfloat")) and not (math.isnan(low) or math.isnan(high)):
        if math.isinf(low) and low < 0 and math.isinf(high) and high > 0:
            return data
        if low <= high and math.isfinite(low) and math.isfinite(high):
            return relax.op.clip(data, low, high)
    if node.opset < 11:
        lower, upper = number(low, data), number(high, data)
        return relax.op.minimum(relax.op.maximum(data, lower), upper)
    for index, open_end, function in (
        (1, -math.inf, relax.op.maximum),
        (2, math.inf, relax.op.minimum),
    ):
        bound = node.get(index)
        if bound is None:
            continue
        if dtype.startswith("float") and constant_value(bound) is None:
            unbounded = number(open_end, data)
            bound = relax.op.where(relax.op.isnan(bound), unbounded, bound)
        data = node.emit(function(data, bound))
    return data


def in_float32(convert: Converter) -> Converter:
    """A converter that computes halves in float32 and rounds the result alone.

    exp(x) - 1 of halves has no digits left near 0, x - mean(x) few, and 1e-9 is 0.
    """

    @functools.wraps(convert)
    def widened(node: Node) -> relax.Expr:
        dtype = node.dtype(0)
        if dtype not in ("float16", "bfloat16"):
            return convert(node)
        node.inputs = [node.emit(relax.op.astype(value, "float32")) for value in node.inputs]
        return relax.op.astype(node.emit(convert(node)), dtype)

    return widened


@in_float32
def elu(node: Node) -> relax.Expr:
    """alpha * (exp(x) - 1) below zero."""
    data = node[0]
    alpha = number(node.attr("alpha", 1.0), data)
    below = relax.op.multiply(alpha, relax.op.subtract(relax.op.exp(data), number(1.0, data)))
    return relax.op.where(relax.op.less(data, number(0.0, data)), below, data)


def prelu(node: Node) -> relax.Expr:
    """slope * x below zero; the slope broadcasts to the operand."""
    slope, shape = static_shape(node[1]), node.extents(0)
    if slope is None:
        return _slope(node[0], node[1])
    if not _fits(slope, shape):
        raise node.unsupported(f"a slope of shape {slope} does not broadcast to {shape}")
    wide = (1,) * (len(shape) - len(slope)) + slope
    data = node.expect_extents(0, dict(enumerate(wide)))
    axes = [axis for axis, extent in enumerate(wide) if extent != 1] or [len(shape) - 1]
    if len(axes) == 1 and shape and node.dtype(0).startswith("float"):
        flat = relax.op.reshape(node[1], (wide[axes[0]],))
        return relax.op.nn.prelu(data, flat, axes[0])
    return _slope(data, node[1])


def _slope(data: relax.Expr, slope: relax.Expr) -> relax.Expr:
    return relax.op.where(
        relax.op.less(data, number(0, data)), relax.op.multiply(data, slope), data
    )


def erf(node: Node) -> relax.Expr:
    """The error function; that of integers is computed in float64."""
    dtype = node.dtype(0)
    if dtype.startswith("float"):
        return relax.op.erf(node[0])
    value = relax.op.erf(node.emit(relax.op.astype(node[0], "float64")))
    return relax.op.astype(value, dtype)


def _fits(shape: Sequence[int], target: Sequence[Any]) -> bool:
    """Whether a tensor of that shape may broadcast to the other one, which stays as it is."""
    pairs = zip(reversed(shape), reversed(target))
    return len(shape) <= len(target) and all(
        extent == 1 or not isinstance(own, int) or extent == own for extent, own in pairs
    )


@in_float32
def celu(node: Node) -> relax.Expr:
    """alpha * (exp(x / alpha) - 1) below zero."""
    data = node[0]
    alpha = number(node.attr("alpha", 1.0), data)
    power = relax.op.exp(relax.op.divide(data, alpha))
    below = relax.op.multiply(alpha, relax.op.subtract(power, number(1.0, data)))
    return relax.op.where(relax.op.less(data, number(0.0, data)), below, data)


@in_float32
def selu(node: Node) -> relax.Expr:
    """gamma * elu(x)."""
    data = node[0]
    alpha = number(node.attr("alpha", 1.67326319217681884765625), data)
    gamma = number(node.attr("gamma", 1.05070102214813232421875), data)
    below = relax.op.multiply(alpha, relax.op.subtract(relax.op.exp(data), number(1.0, data)))
    both = relax.op.where(relax.op.less_equal(data, number(0.0, data)), below, data)
    return relax.op.multiply(gamma, both)


@in_float32
def softplus(node: Node) -> relax.Expr:
    """log(1 + exp(x)), written so that exp never overflows."""
    return _softplus(node[0])


def _softplus(data: relax.Expr) -> relax.Expr:
    tail = relax.op.exp(relax.op.negative(relax.op.abs(data)))
    # log(1 + t) loses t where 1 + t rounds; its series does not.
    series = relax.op.multiply(
        tail, relax.op.subtract(number(1.0, data), relax.op.multiply(number(0.5, data), tail))
    )
    small = relax.op.less(tail, number(1e-3, data))
    exact = relax.op.log(relax.op.add(number(1.0, data), tail))
    positive = relax.op.maximum(data, number(0.0, data))
    return relax.op.add(positive, relax.op.where(small, series, exact))


@in_float32
def mish(node: Node) -> relax.Expr:
    """x * tanh(softplus(x))."""
    return relax.op.multiply(node[0], relax.op.tanh(_softplus(node[0])))


# A chain of 1,500 additions exceeds Python's default recursion limit in passes over expressions.
MAX_IN_ORDER = 32
"""Operands of Sum, Max, Min and Mean that are combined one after the other."""


def _of_all(function: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """An associative function of two operands, applied to all: in order, or in halves if many."""

    def convert(node: Node) -> relax.Expr:
        return combined([node[index] for index in range(len(node.inputs))], node)

    def combined(operands: Sequence[relax.Expr], node: Node) -> relax.Expr:
        if len(operands) > MAX_IN_ORDER:
            half = len(operands) // 2
            operands = [combined(operands[:half], node), combined(operands[half:], node)]
        return functools.reduce(lambda left, right: node.emit(function(left, right)), operands)

    return convert


total = in_float32(_of_all(relax.op.add))
"""The sum of all operands, which broadcast to each other."""


@in_float32
def mean(node: Node) -> relax.Expr:
    """The mean of all operands, which broadcast to each other."""
    return relax.op.divide(total(node), number(len(node.inputs), node[0]))


def _holds(dtype: str, numbers: relax.Expr) -> bool:
    """Whether a floating-point dtype is known to hold the elements of a tensor."""
    array = constant_value(numbers)
    if array is None or dtype == "bfloat16":
        return dtype != "bfloat16" and np.can_cast(dtype_of(numbers), dtype)
    with np.errstate(over="ignore"):
        return bool((array.astype(dtype) == array).all())


def power(node: Node) -> relax.Expr | None:
    """Powers whose exponent is of another dtype, and integer powers."""
    base, exponent = node[0], node[1]
    if dtype_of(base).startswith("float"):
        if dtype_of(exponent) == dtype_of(base):
            return None
        if not _holds(dtype_of(base), exponent):
            wide = (relax.op.astype(each, "float64") for each in (base, exponent))
            return relax.op.astype(node.emit(relax.op.power(*map(node.emit, wide))), dtype_of(base))
        return relax.op.power(base, relax.op.astype(exponent, dtype_of(base)))
    # Integers: float64 holds every result that 32 bits and most that 64 bits can.
    wide = relax.op.power(relax.op.astype(base, "float64"), relax.op.astype(exponent, "float64"))
    wide = node.emit(wide)
    whole = node.emit(relax.op.round(wide))
    if dtype_of(exponent).startswith("float"):  # fractions are cut off, errors of rounding are not
        error = relax.op.abs(relax.op.subtract(wide, whole))
        near = relax.op.multiply(relax.op.abs(whole), relax.const(1e-12, "float64"))
        whole = relax.op.where(relax.op.less_equal(error, near), whole, relax.op.trunc(wide))
    return relax.op.astype(whole, dtype_of(base))


def shrink(node: Node) -> relax.Expr:
    """Zero from -lambd to lambd, and nearer to zero by the bias beyond, rounded to integers."""
    data, dtype = node[0], node.dtype(0)
    if not dtype.startswith("float"):
        data = node.emit(relax.op.astype(data, "float64"))
    bias, limit = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    above = relax.op.where(
        relax.op.greater(data, number(limit, data)),
        relax.op.subtract(data, number(bias, data)),
        number(0.0, data),
    )
    below = relax.op.less(data, number(-limit, data))
    value = node.emit(relax.op.where(below, relax.op.add(data, number(bias, data)), above))
    return value if dtype_of(value) == dtype else relax.op.astype(value, dtype)


def thresholded_relu(node: Node) -> relax.Expr:
    """x where it is larger than alpha, else 0, also for NaN."""
    data = node[0]
    above = relax.op.greater(data, number(node.attr("alpha", 1.0), data))
    return relax.op.where(above, data, number(0.0, data))


def is_infinite(node: Node) -> relax.Expr:
    """Infinities of the signs that the attributes ask for."""
    data = node[0]
    signs = []
    if node.attr("detect_positive", 1):
        signs.append(relax.op.equal(data, number(math.inf, data)))
    if node.attr("detect_negative", 1):
        signs.append(relax.op.equal(data, number(-math.inf, data)))
    if not signs:
        return relax.const(np.zeros(node.shape(0), "bool"), "bool")
    return signs[0] if len(signs) == 1 else relax.op.logical_or(*signs)


def shift(node: Node) -> relax.Expr | None:
    """Bit shifts; by the width or more, every bit is shifted out."""
    data, amount = node[0], node[1]
    if dtype_of(data).startswith("uint"):
        return None
    bits = int(dtype_of(data).removeprefix("int"))
    out = relax.op.logical_or(
        relax.op.less(amount, number(0, amount)),
        relax.op.greater_equal(amount, number(bits, amount)),
    )
    safe = relax.op.where(out, number(0, amount), amount)
    zero = number(0, data)
    if node.attr("direction") == "LEFT":
        return relax.op.where(out, zero, relax.op.left_shift(data, safe))
    negative = relax.op.where(relax.op.less(data, zero), number(-1, data), zero)
    return relax.op.where(out, negative, relax.op.right_shift(data, safe))


def bit_cast(node: Node) -> relax.Expr:
    """Reinterpret the bits as another dtype of the same width."""
    from ..model import tensor_dtype

    given, wanted = node.dtype(0), tensor_dtype(node.attr("to"), "the result of BitCast")
    if given == "bool" or wanted == "bool":  # a byte that is 0 or 1
        return relax.op.astype(node[0], wanted)
    return registry.call("reinterpret", [node[0]], {"dtype": wanted})


def reciprocal(node: Node) -> relax.Expr:
    return relax.op.divide(number(1, node[0]), node[0])


def softsign(node: Node) -> relax.Expr:
    """x / (1 + abs(x))."""
    return relax.op.divide(node[0], relax.op.add(relax.op.abs(node[0]), number(1, node[0])))


def _unary(function: Callable[[relax.Expr], relax.Expr]) -> Converter:
    return lambda node: function(node[0])


def _binary(function: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    return lambda node: function(node[0], node[1])


_LOWER_CASE = (
    "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Floor IsNaN Round Sigmoid Sign Sin Sinh Sqrt "
    "Tan Tanh"
)
_UNARY = {
    **{name: getattr(relax.op, name.lower()) for name in _LOWER_CASE.split()},
    "Not": relax.op.logical_not,
    "Relu": relax.op.nn.relu,
}
"""Operators that are one function of one operand."""

_BINARY = {
    "Add": relax.op.add,
    "And": relax.op.logical_and,
    "Greater": relax.op.greater,
    "GreaterOrEqual": relax.op.greater_equal,
    "Less": relax.op.less,
    "LessOrEqual": relax.op.less_equal,
    "Mul": relax.op.multiply,
    "Or": relax.op.logical_or,
    "Sub": relax.op.subtract,
    "Xor": relax.op.logical_xor,
}
"""Operators that are one function of two operands."""

CONVERTERS = {
    **{name: _binary(function) for name, function in _BINARY.items()},
    **{name: _unary(function) for name, function in _UNARY.items()},
    "BitCast": bit_cast,
    "BitShift": shift,
    "Celu": celu,
    "Clip": clip,
    "Elu": elu,
    "Erf": erf,
    "IsInf": is_infinite,
    "Max": _of_all(relax.op.maximum),
    "Mean": mean,
    "Min": _of_all(relax.op.minimum),
    "Mish": mish,
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": reciprocal,
    "Selu": selu,
    "Shrink": shrink,
    "Softplus": softplus,
    "Softsign": softsign,
    "Sum": total,
    "ThresholdedRelu": thresholded_relu,
}
