"""Element-wise operators: unary functions, arithmetic, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from ...errors import RelayTypeError
from ..type_infer import infer_type, type_of
from . import layout_rules, quantization
from .op_def import BROADCAST, ELEMENTWISE, FOLLOW, NEVER
from .raising import Definitions, from_relax, same_name, typed_call, value_of
from .registry import builders_of, operator
from .shapes import broadcast_extents, constant_value, dtype, extents, is_float, joint_shape
from .te_op import kernel
from .typed_relax import op

# Operators that TVM defined in this module, implemented elsewhere.
__getattr__ = builders_of("")[0]

Unary = Callable[[Any], relax.Expr]
Binary = Callable[[Any, Any], relax.Expr]


def _unary(name: str, function: Unary, what: str, how: str = "direct", **facts: Any) -> Unary:
    def make(data: relax.Expr) -> relax.Expr:
        return function(data)

    if how == "direct":
        same_name(name)
    facts = {"pattern": ELEMENTWISE, "layout": layout_rules.elementwise, **facts}
    return operator(name, how=how, doc=f"{what} of each element.", **facts)(make)


def _topi_unary(name: str, what: str, **facts: Any) -> Unary:
    return _unary(name, kernel(name, getattr(topi, name)), what, how="TOPI", **facts)


def _quantizable(name: str, function: Unary, what: str, **facts: Any) -> Unary:
    """Unary function with a quantized form."""
    return _unary(name, function, what, quantized=quantization.function(f"qnn.{name}"), **facts)


log = _quantizable("log", op.log, "Natural logarithm")
log2 = _topi_unary("log2", "Logarithm to base 2")
log10 = _topi_unary("log10", "Logarithm to base 10")
tan = _unary("tan", op.tan, "Tangent")
cos = _unary("cos", op.cos, "Cosine")
cosh = _unary("cosh", op.cosh, "Hyperbolic cosine")
sin = _unary("sin", op.sin, "Sine")
sinh = _unary("sinh", op.sinh, "Hyperbolic sine")
acos = _unary("acos", op.acos, "Inverse cosine")
acosh = _unary("acosh", op.acosh, "Inverse hyperbolic cosine")
asin = _unary("asin", op.asin, "Inverse sine")
asinh = _unary("asinh", op.asinh, "Inverse hyperbolic sine")
atan = _unary("atan", op.atan, "Inverse tangent")
atanh = _unary("atanh", op.atanh, "Inverse hyperbolic tangent")
exp = _quantizable("exp", op.exp, "Exponential", precision=NEVER, fast="fast_exp")
erf = _quantizable("erf", op.erf, "Error function", precision=NEVER, fast="fast_erf")
sqrt = _quantizable("sqrt", op.sqrt, "Square root", precision=FOLLOW)
rsqrt = _quantizable("rsqrt", op.rsqrt, "Reciprocal of the square root")
sigmoid = _quantizable("sigmoid", op.sigmoid, "Logistic function", precision=FOLLOW)
floor = _unary("floor", op.floor, "Next integer below")
ceil = _unary("ceil", op.ceil, "Next integer above")
trunc = _unary("trunc", op.trunc, "Next integer towards zero")
abs = _quantizable("abs", op.abs, "Absolute value")
sign = _unary("sign", op.sign, "Sign: -1, 0 or 1")
tanh = _quantizable("tanh", op.tanh, "Hyperbolic tangent", precision=FOLLOW, fast="fast_tanh")
negative = _unary("negative", op.negative, "Negation")
bitwise_not = _unary("bitwise_not", op.bitwise_not, "Complement of the bits")
isnan = _unary("isnan", op.isnan, "Whether it is NaN")
isfinite = _unary("isfinite", op.isfinite, "Whether it is finite")
isinf = _unary("isinf", op.isinf, "Whether it is infinite")
logical_not = _unary("logical_not", op.logical_not, "Negation of the truth value")
fast_exp = _topi_unary("fast_exp", "Approximate exponential", precision=FOLLOW)
fast_tanh = _topi_unary("fast_tanh", "Approximate hyperbolic tangent", precision=FOLLOW)
fast_erf = _topi_unary("fast_erf", "Approximate error function", precision=FOLLOW)


_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Exponent from which all floats of a dtype are integers."""


def half_away(value: Any, name: str) -> Any:
    """Round a TIR float expression, half away from zero."""
    whole = tirx.trunc(value)
    nearest = whole + tirx.trunc((value - whole) * tirx.const(2, name))
    return tirx.Select(
        tirx.abs(value) < tirx.const(float(2 ** _MANTISSA[name]), name), nearest, value
    )


def _round(data: te.Tensor) -> te.Tensor:
    """Round, half away from zero."""
    name = str(data.dtype)
    return te.compute(
        data.shape,
        lambda *i: half_away(data(*i), name) if is_float(name) else data(*i),
        name="round",
        tag=topi.tag.ELEMWISE,
    )


round = _unary("round", kernel("round", _round), "Nearest integer, halves away from zero", how="TE")


def _binary(name: str, function: Binary, what: str, how: str = "direct", **facts: Any) -> Binary:
    def make(lhs: relax.Expr, rhs: relax.Expr) -> relax.Expr:
        return broadcasting(function, lhs, rhs)

    doc = f"{what}; the operands broadcast as in numpy and have one dtype."
    if how == "direct":
        same_name(name)
    facts = {"pattern": BROADCAST, "layout": layout_rules.broadcast, **facts}
    return operator(name, 2, how=how, doc=doc, **facts)(make)


def broadcasting(function: Binary, lhs: relax.Expr, rhs: relax.Expr) -> relax.Expr:
    """Apply a binary operator with static or dynamic broadcasting; RelayTypeError on mismatch."""
    if dtype(lhs) != dtype(rhs):
        raise RelayTypeError(
            f"argument rhs has the type {type_of(rhs)}, its dtype must be that of lhs: "
            f"{type_of(lhs)}"
        )
    try:
        shape = joint_shape([extents(lhs), extents(rhs)])
    except RelayTypeError as error:
        raise RelayTypeError(
            f"argument rhs of type {type_of(rhs)} does not broadcast with lhs of type "
            f"{type_of(lhs)}: {error}"
        ) from None
    result = infer_type(function(lhs, rhs))
    if isinstance(result.ty, relax.TensorType) and result.ty.shape is None:
        result = infer_type(function(broadcast_extents(lhs, shape), broadcast_extents(rhs, shape)))
    return result


def _exactly(integer: Binary, real: Binary) -> Binary:
    """Select a function by dtype: one for integers, one for floats."""
    return lambda a, b: real(a, b) if is_float(dtype(a)) else integer(a, b)


def _trunc_divide(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    return op.trunc(op.divide(a, b))


def _trunc_mod(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    return op.subtract(a, op.multiply(op.trunc(op.divide(a, b)), b))


add = _binary("add", op.add, "Sum", precision=FOLLOW, quantized=quantization.arithmetic("qnn.add"))
subtract = _binary(
    "subtract",
    op.subtract,
    "Difference",
    precision=FOLLOW,
    quantized=quantization.arithmetic("qnn.subtract"),
)
multiply = _binary(
    "multiply",
    op.multiply,
    "Product",
    precision=FOLLOW,
    quantized=quantization.arithmetic("qnn.mul"),
)
divide = _binary(
    "divide", op.divide, "Quotient, of integers rounded towards zero", precision=FOLLOW
)
floor_divide = _binary("floor_divide", op.floor_divide, "Quotient rounded down")
trunc_divide = _binary(
    "trunc_divide", _exactly(op.divide, _trunc_divide), "Quotient rounded to zero", "composed"
)
mod = _binary("mod", op.mod, "Remainder with the sign of the dividend")
floor_mod = _binary("floor_mod", op.floor_mod, "Remainder with the sign of the divisor")
trunc_mod = _binary(
    "trunc_mod", _exactly(op.mod, _trunc_mod), "Remainder of trunc_divide", "composed"
)
power = _binary("power", op.power, "Power", precision=NEVER)
maximum = _binary(
    "maximum", op.maximum, "The larger one", precision=FOLLOW, quantized=quantization.extremum
)
minimum = _binary(
    "minimum", op.minimum, "The smaller one", precision=FOLLOW, quantized=quantization.extremum
)
left_shift = _binary("left_shift", op.left_shift, "Bits shifted left")
right_shift = _binary("right_shift", op.right_shift, "Bits shifted right")
bitwise_and = _binary("bitwise_and", op.bitwise_and, "Conjunction of the bits")
bitwise_or = _binary("bitwise_or", op.bitwise_or, "Disjunction of the bits")
bitwise_xor = _binary("bitwise_xor", op.bitwise_xor, "Exclusive disjunction of the bits")
logical_and = _binary("logical_and", op.logical_and, "Conjunction")
logical_or = _binary("logical_or", op.logical_or, "Disjunction")
logical_xor = _binary("logical_xor", op.logical_xor, "Exclusive disjunction")
equal = _binary("equal", op.equal, "Whether equal")
not_equal = _binary("not_equal", op.not_equal, "Whether different")
less = _binary("less", op.less, "Whether less", precision=FOLLOW)
less_equal = _binary("less_equal", op.less_equal, "Whether less or equal", precision=FOLLOW)
greater = _binary("greater", op.greater, "Whether greater", precision=FOLLOW)
greater_equal = _binary(
    "greater_equal", op.greater_equal, "Whether greater or equal", precision=FOLLOW
)


@operator(
    "clip",
    prepare={"a_min": float, "a_max": float},
    how="direct",
    pattern=ELEMENTWISE,
    precision=FOLLOW,
    layout=layout_rules.elementwise,
    quantized=quantization.clip,
)
def clip(a: relax.Expr, a_min: float, a_max: float) -> relax.Expr:
    """Clip elements to [a_min, a_max]; integer dtypes clip the limits to their range."""
    name = dtype(a)
    low, high = _number(a_min), _number(a_max)
    if is_float(name):
        low, high = float(low), float(high)
    else:
        info = tirx.min_value(name).value, tirx.max_value(name).value
        low, high = int(max(low, info[0])), int(min(high, info[1]))
    return op.clip(a, relax.prim_value(low, name), relax.prim_value(high, name))


@from_relax("clip")
def _clip_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    low, high = (value_of(bound) for bound in call.args[1:])
    if low is None or high is None:
        return None
    return typed_call("clip", call.args[:1], call.ty, a_min=float(low), a_max=float(high))


def _number(value: Any) -> Any:
    array = constant_value(value)
    if array is not None:
        return array.item()
    return value.value if isinstance(value, (tirx.IntImm, tirx.FloatImm)) else value


def _fixed_point_multiply(data: te.Tensor, multiplier: int, shift: int) -> te.Tensor:
    """data * multiplier * 2**(shift - 31) in int64, half rounded up."""
    left, right = (tirx.const(n, "int64") for n in (max(shift, 0), 31 + max(-shift, 0)))
    return te.compute(
        data.shape,
        lambda *i: _scaled(data(*i), tirx.const(multiplier, "int64"), left, right).astype(
            data.dtype
        ),
        name="fixed_point_multiply",
        tag=topi.tag.ELEMWISE,
    )


def _scaled(value: Any, multiplier: Any, left: Any, right: Any) -> Any:
    """value * 2**left * multiplier / 2**right, half rounded up."""
    one = tirx.const(1, "int64")
    product = (value.astype("int64") << left) * multiplier
    return (product + (one << (right - 1))) >> right


_fixed_point_multiply_kernel = kernel("fixed_point_multiply", _fixed_point_multiply)


@operator("fixed_point_multiply", how="TE", pattern=ELEMENTWISE, layout=layout_rules.elementwise)
def fixed_point_multiply(data: relax.Expr, multiplier: int, shift: int) -> relax.Expr:
    """int32 times multiplier * 2**(shift - 31), half rounded up."""
    return _fixed_point_multiply_kernel(data, multiplier=int(multiplier), shift=int(shift))


def _fixed_point_multiply_per_axis(
    data: te.Tensor,
    multiplier: te.Tensor,
    lshift: te.Tensor,
    rshift: te.Tensor,
    is_lshift_required: bool,
    is_rshift_required: bool,
    axes: list[int],
) -> te.Tensor:
    """Fixed-point multiply with a multiplier and shifts per position along `axes`."""

    def value(*indices: Any) -> Any:
        at = [indices[axis] for axis in axes]
        left = lshift(*at).astype("int64") if is_lshift_required else tirx.const(0, "int64")
        right = tirx.const(31, "int64")
        if is_rshift_required:
            right = right + rshift(*at).astype("int64")
        scaled = _scaled(data(*indices), multiplier(*at).astype("int64"), left, right)
        return scaled.astype(data.dtype)

    return te.compute(
        data.shape, value, name="fixed_point_multiply_per_axis", tag=topi.tag.BROADCAST
    )


_per_axis_kernel = kernel("fixed_point_multiply_per_axis", _fixed_point_multiply_per_axis)


@operator(
    "fixed_point_multiply_per_axis",
    4,
    how="TE",
    pattern=BROADCAST,
    layout=layout_rules.per_axis_multiply,
)
def fixed_point_multiply_per_axis(
    data: relax.Expr,
    multiplier: relax.Expr,
    lshift: relax.Expr,
    rshift: relax.Expr,
    is_lshift_required: bool = False,
    is_rshift_required: bool = False,
    axes: list[int] | None = None,
) -> relax.Expr:
    """Fixed-point multiply with a multiplier and shifts per position along `axes`."""
    return _per_axis_kernel(
        data,
        multiplier,
        lshift,
        rshift,
        is_lshift_required=bool(is_lshift_required),
        is_rshift_required=bool(is_rshift_required),
        axes=[int(axis) for axis in axes or ()],
    )


@operator("copy", pattern=ELEMENTWISE, precision=FOLLOW, layout=layout_rules.elementwise)
def copy(data: relax.Expr) -> relax.Expr:
    """Identity: expressions have no storage to copy."""
    return data


@operator(
    "device_copy",
    ignored=("src_virtual_device", "dst_virtual_device"),
    layout=layout_rules.elementwise,
)
def device_copy(data: relax.Expr, src_device: Any = None, dst_device: Any = None) -> relax.Expr:
    """Identity: the build places tensors on devices and copies between different devices."""
    return data
