"""Replace float32 exp, log, tanh, erf and sigmoid by polynomials, constant divisors by factors.

LLVM calls the C library once per lane for these functions, which takes most of the time of a
softmax or GELU kernel. Each replacement has neither branches nor calls, about 10 to 20
arithmetic instructions, and handles NaN and infinities.

========  =======================================  ==========================================
function  largest error against the exact value    exceptions
========  =======================================  ==========================================
exp       6 ULP; below 1.2e-38 4 * 2^-149         in a softmax, results below 1.7e-38 become 0
log       2 ULP                                    denormal inputs are exact to the same bound
tanh      8 ULP
erf       8 ULP
sigmoid   7 ULP                                    results below 1.7e-38 may become 0
========  =======================================  ==========================================

Coefficients are minimax fits of the relative error (Lawson iteration in float64).

Multiply-adds dominate the cost per vector: an exponential has seven, and six simpler
instructions. A product with a sigmoid, as in SiLU, divides by 1 + exp(-x) instead of multiplying by
the quotient, within 1 ULP more.

Dividing by a constant becomes a multiplication by its reciprocal, within 1 ULP, where both are
normal numbers: a division takes as long as ten multiplications or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad
from tvm.target import Target

from ...tir_visit import nodes_of
from .cpu import Machine

Expr = Any

# Adding and subtracting 1.5 * 2^23 rounds a float32 to an integer, which then stands in the
# low bits of the sum: neither a rounding nor a conversion instruction is needed. With 126 more, the
# bits are the biased exponent of half the power of two; with 253 more, the sum of the biased
# exponents of two factors of it.
_ROUND = 1.5 * 2.0**23 + 126.0
_ROUND_TWICE = 1.5 * 2.0**23 + 253.0
_LOG2_E = 1.0 / math.log(2.0)
_LN2 = math.log(2.0)
# ln 2 in two parts; products of the first with integers below 2^15 are exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = _LN2 - _LN2_HIGH

# exp: results leave the range of normal numbers, and of all numbers, outside of these arguments.
_EXP_LOWEST, _EXP_HIGHEST = -87.5, 89.0
_EXP_TO_ZERO = -105.0
_LEAST_NORMAL = 2.0**-126
# 2 * exp(r) on [-ln2 / 2, ln2 / 2].
_EXP = (
    2.0,
    1.9999994039535522,
    0.9999829530715942,
    0.33335307240486145,
    0.08379631489515305,
    0.016578534618020058,
)
# (log(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1].
_LOG = (
    0.3333331346511841,
    -0.25000008940696716,
    0.2000211924314499,
    -0.1666799634695053,
    0.14219552278518677,
    -0.1240558922290802,
    0.11888162046670914,
    -0.11675652116537094,
    0.06746640801429749,
)
# tanh(x) / x as P(x^2) / Q(x^2) up to the argument from which tanh rounds to 1.
_TANH_HIGHEST = 9.02
_TANH_P = (
    1.0,
    0.13379713892936707,
    0.003494029864668846,
    2.058340578514617e-05,
    1.331897081513489e-08,
)
_TANH_Q = (
    1.0,
    0.46713030338287354,
    0.02587105520069599,
    0.00032830852433107793,
    7.761977371956164e-07,
)
# erf(x) / x, likewise.
_ERF_HIGHEST = 3.925
_ERF_P = (
    1.1283791065216064,
    0.1905941665172577,
    0.05276934802532196,
    0.0037725670263171196,
    0.0002848438161890954,
    2.0460229279706255e-06,
)
_ERF_Q = (
    1.0,
    0.502242386341095,
    0.11418288946151733,
    0.014983231201767921,
    0.0011638617143034935,
    3.8047743146307766e-05,
)


def approximate(func: tirx.PrimFunc, target: Target | None = None) -> tirx.PrimFunc:
    """Replace every float32 exp, log, tanh, erf and sigmoid call, and division by a constant.

    Works before and after scheduling, inside blocks. A function without any is returned as it is.

    `target`: an LLVM CPU. Where its multiply-add is one instruction, an exponential is one shorter.
    """
    fused = target is not None and Machine.from_target(target).has_fma
    has_running_max = _has_running_max(func)
    replaced = False

    def divide(product: tirx.Mul) -> Expr:
        """a * sigmoid(b) = a / (1 + exp(-b))"""
        nonlocal replaced
        for factor, gate in ((product.a, product.b), (product.b, product.a)):
            if _function(gate) == "tirx.sigmoid":
                replaced = True
                return factor / _one_plus_exp_of_negative(_argument(gate), fused)
        return product

    def replace(call: Call) -> Expr:
        nonlocal replaced
        name = _function(call)
        if name == "tirx.exp":
            is_softmax = has_running_max and isinstance(call.args[0], tirx.Sub)
            result = (_exp_to_normal if is_softmax else _exp)(_argument(call), fused)
        elif name == "tirx.sigmoid":
            result = _f32(1.0) / _one_plus_exp_of_negative(_argument(call), fused)
        elif name in _OTHERS:
            result = _OTHERS[name](_argument(call))
        else:
            return call
        replaced = True
        return result

    def multiply(quotient: tirx.Div) -> Expr:
        nonlocal replaced
        divisor = quotient.b
        if str(quotient.ty.dtype) != "float32" or not isinstance(divisor, tirx.FloatImm):
            return quotient
        if not _LEAST_NORMAL <= abs(divisor.value) <= 1 / _LEAST_NORMAL:
            return quotient
        replaced = True
        return quotient.a * _f32(1.0 / divisor.value)

    body = tvm_ffi.structural_map(func.body, (tirx.Mul, divide))
    body = tvm_ffi.structural_map(body, [(Call, replace), (tirx.Div, multiply)])
    return func.with_body(body) if replaced else func


def _has_running_max(func: tirx.PrimFunc) -> bool:
    """Whether a kernel takes a maximum over an axis, as softmax: exponentials are at most 1."""
    for store in nodes_of(func.body, tirx.BufferStore):
        loads = (
            load.source
            for each in nodes_of(store.value, tirx.Max)
            for load in nodes_of(each, TensorLoad)
        )
        if any(source.same_as(store.buffer) for source in loads):
            return True
    return False


def _function(value: Expr) -> str:
    """Name of the function of a float32 that a call calls; empty for anything else."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return ""
    name = str(value.op.name)
    return name if name in _FUNCTIONS and str(value.ty.dtype) == "float32" else ""


def _argument(call: Call) -> Expr:
    # TVM's simplifier fails on a `let` whose value becomes a constant only when a loop
    # around it has been unrolled or a condition resolved; LLVM drops the two casts.
    return _float(_bits(call.args[0]))


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


def _bind(value: Expr, body: Callable[[Expr], Expr], name: str) -> Expr:
    """`let name = value in body(name)`: the value is computed once however often it is used."""
    var = tirx.Var(name, value.ty)
    return tirx.Let(var, value, body(var))


def _horner(coefficients: Sequence[float], x: Expr) -> Expr:
    """Polynomial with the coefficients in rising order."""
    result = _f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _f32(coefficient)
    return result


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """x within [low, high]; NaN stays NaN, which the build sees to for every maximum and minimum.

    Selections would do as well, but TVM's simplifiers take five times as long for each that is
    bound to a name.
    """
    return tirx.Min(tirx.Max(x, _f32(low)), _f32(high))


def _bits(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x)


def _float(bits: Expr) -> Expr:
    return tirx.reinterpret("float32", bits)


def _exp(argument: Expr, fused: bool) -> Expr:
    """exp(x) with denormal results, by a product of two normal numbers; see `_scaled_exp`."""

    def finish(value: Expr, shifted: Expr) -> Expr:
        half = _bits(shifted) >> 1
        return value * _float(half << 23) * _float((_bits(shifted) - half) << 23)

    return _scaled_exp(argument, 1.0, fused, finish, _EXP_TO_ZERO, _ROUND_TWICE)


def _exp_to_normal(argument: Expr, fused: bool) -> Expr:
    """Compute exp(x) as `_scaled_exp` does; results below 1.7e-38 become 0."""
    return _scaled_exp(argument, 1.0, fused, lambda value, shifted: value * _power(shifted))


def _power(shifted: Expr) -> Expr:
    return _float(_bits(shifted) << 23)


def _one_plus_exp_of_negative(argument: Expr, fused: bool) -> Expr:
    """1 + exp(-x), infinite below the lowest argument."""
    return _scaled_exp(
        argument, -1.0, fused, lambda value, shifted: value * _power(shifted) + _f32(1.0)
    )


def _scaled_exp(
    argument: Expr,
    sign: float,
    fused: bool,
    finish: Callable[[Expr, Expr], Expr],
    lowest: float = _EXP_LOWEST,
    rounding: float = _ROUND,
) -> Expr:
    """`finish` of 2 exp(r) and n + rounding, for exp(y) = 2 exp(r) * 2^(n - 1), y = r + n ln 2.

    y = sign x, n = round(y / ln 2). The factor 2 moves to the polynomial so that n = 128, just
    below overflow, needs no special case; n = -126 gives the factor 0. The polynomial is one of
    sign r, and negative only in its coefficients, so that -x is never computed.

    `lowest`: y, from which results are 0.
    `rounding`: `_ROUND`, or another constant that rounds n.
    `fused`: whether the product n ln 2 is rounded only with the difference. Then one constant will
    do: ln 2 as a float32 is good to 33 bits.
    """
    low, high = sorted((sign * lowest, sign * _EXP_HIGHEST))
    coefficients = [value * sign**power for power, value in enumerate(_EXP)]

    def with_shifted(x: Expr, shifted: Expr) -> Expr:
        def with_n(n: Expr) -> Expr:
            if fused:
                reduced = x - n * _f32(sign * _LN2)
            else:
                reduced = (x - n * _f32(sign * _LN2_HIGH)) - n * _f32(sign * _LN2_LOW)
            return _bind(reduced, lambda r: finish(_horner(coefficients, r), shifted), "r")

        return _bind(shifted - _f32(rounding), with_n, "n")

    def with_clamped(x: Expr) -> Expr:
        shifted = x * _f32(sign * _LOG2_E) + _f32(rounding)
        return _bind(shifted, lambda s: with_shifted(x, s), "shifted")

    def with_argument(x: Expr) -> Expr:
        return _bind(_clamp(x, low, high), with_clamped, "x")

    return _bind(argument, with_argument, "exp_arg")


def _log(argument: Expr) -> Expr:
    """log(x) = e ln 2 + log(m), x = m 2^e with m in [sqrt(1/2), sqrt(2))."""
    smallest_normal = 2.0**-126
    sqrt_half_bits = 0x3F3504F3

    def with_offset(x: Expr, offset: Expr) -> Expr:
        exponent = (offset >> 23).astype("float32")
        exponent -= tirx.Select(x < _f32(smallest_normal), _f32(24.0), _f32(0.0))
        mantissa = _float(
            (offset & tirx.const(0x007FFFFF, "int32")) + tirx.const(sqrt_half_bits, "int32")
        )

        def with_f(e: Expr, f: Expr) -> Expr:
            square = f * f
            tail = square * f * _horner(_LOG, f) - square * _f32(0.5) + e * _f32(_LN2_LOW)
            return e * _f32(_LN2_HIGH) + (f + tail)

        finite = _bind(
            exponent, lambda e: _bind(mantissa - _f32(1.0), lambda f: with_f(e, f), "f"), "e"
        )
        infinity = _f32(math.inf)
        above_zero = tirx.Select(x == infinity, infinity, finite)
        at_least_zero = tirx.Select(x == _f32(0.0), _f32(-math.inf), above_zero)
        # Not x >= 0 also holds for NaN.
        return tirx.Select(x >= _f32(0.0), at_least_zero, _f32(math.nan))

    def with_argument(x: Expr) -> Expr:
        normal = tirx.Select(x < _f32(smallest_normal), x * _f32(2.0**24), x)
        # Not bound: TVM keeps one range for an integer, and stops where it finds another one.
        return with_offset(x, _bits(normal) - tirx.const(sqrt_half_bits, "int32"))

    return _bind(argument, with_argument, "log_arg")


def _odd_rational(argument: Expr, highest: float, p: Sequence[float], q: Sequence[float]) -> Expr:
    """x P(x^2) / Q(x^2), saturating at -1 and 1."""

    def with_clamped(x: Expr) -> Expr:
        def with_square(square: Expr) -> Expr:
            return x * _horner(p, square) / _horner(q, square)

        return _bind(_bind(x * x, with_square, "square"), lambda y: _clamp(y, -1.0, 1.0), "y")

    def with_argument(x: Expr) -> Expr:
        return _bind(_clamp(x, -highest, highest), with_clamped, "x")

    return _bind(argument, with_argument, "arg")


_OTHERS: dict[str, Callable[[Expr], Expr]] = {
    "tirx.log": _log,
    "tirx.tanh": lambda argument: _odd_rational(argument, _TANH_HIGHEST, _TANH_P, _TANH_Q),
    "tirx.erf": lambda argument: _odd_rational(argument, _ERF_HIGHEST, _ERF_P, _ERF_Q),
}
_FUNCTIONS = frozenset({"tirx.exp", "tirx.sigmoid", *_OTHERS})
