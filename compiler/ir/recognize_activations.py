"""Recognize GELU and SiLU that an exporter decomposed."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from .constants import dtype_of, scalar_of
from .rewrite import CallRule, call_pass, is_same_type, operator_name

TOLERANCE, OF_HALVES = 1e-4, 1e-3
"""Relative difference allowed in a constant: exporters round sqrt(2) and sqrt(2 / pi)."""

MAX_DEGREE = 3
Polynomial = dict[int, float]
"""Degree to coefficient."""

ERF_ARGUMENT: Polynomial = {1: math.sqrt(0.5)}
TANH_ARGUMENT: Polynomial = {1: math.sqrt(2 / math.pi), 3: 0.044715 * math.sqrt(2 / math.pi)}


class _Recognize(CallRule):
    """Replace a spelled-out GELU by `nn.gelu` or `nn.gelu_tanh`.

    1. 0.5 * x * (1 + erf(x / sqrt(2))) becomes nn.gelu(x).
    2. 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) becomes nn.gelu_tanh(x).

    The factors may come in any order and grouping, and the arguments of erf and tanh in any form
    that is the same polynomial of x. At every level: what is spelled out may overflow where x is
    above half of the largest float, the operators do not.

        before   a = divide(x, 1.41421); b = add(erf(a), 1); y = multiply(multiply(x, b), 0.5)
        after    y = nn.gelu(x)
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in ("multiply", "divide") or not dtype_of(call).startswith("float"):
            return None
        scale, factors = self._factors(call)
        if len(factors) != 2 or not math.isclose(scale, 0.5, rel_tol=_tolerance(call)):
            return None
        for data, gate in (factors, factors[::-1]):
            kind = self._gate(gate, data)
            if kind is not None and is_same_type(call.ty, data.ty):
                return relax.op.nn.gelu(data) if kind == "erf" else relax.op.nn.gelu_tanh(data)
        return None

    def _factors(self, expr: Any, root: bool = True) -> tuple[float, list[Any]]:
        """A product as a number and the factors that are not numbers."""
        number = scalar_of(expr)
        if number is not None:
            return number, []
        value = self.scope.definition(expr)
        name = operator_name(value)
        if name in ("multiply", "divide") and (root or self.scope.used_once(expr)):
            left, right = value.args
            divisor = scalar_of(right)
            if name == "multiply":
                first, second = self._factors(left, False), self._factors(right, False)
                return first[0] * second[0], first[1] + second[1]
            if divisor:
                scale, factors = self._factors(left, False)
                return scale / divisor, factors
        return 1.0, [expr]

    def _gate(self, expr: Any, data: Any) -> str | None:
        """ "erf" or "tanh" if `expr` is one plus that function of GELU's argument for `data`."""
        total = self.scope.match_call(expr, "add")
        if total is None or not self.scope.used_once(expr):
            return None
        left, right = total.args
        if scalar_of(left) == 1.0:
            left, right = right, left
        if scalar_of(right) != 1.0:
            return None
        inner = self.scope.definition(left)
        for name, wanted in (("erf", ERF_ARGUMENT), ("tanh", TANH_ARGUMENT)):
            if operator_name(inner) == name:
                found = self._polynomial(inner.args[0], data)
                return (
                    name if found is not None and _close(found, wanted, _tolerance(expr)) else None
                )
        return None

    def _polynomial(self, expr: Any, data: Any) -> Polynomial | None:
        """`expr` as a polynomial of `data`; None if it is none, or one of too high a degree."""
        if expr.same_as(data):
            return {1: 1.0}
        number = scalar_of(expr)
        if number is not None:
            return {0: number}
        value = self.scope.definition(expr)
        name = operator_name(value)
        if name == "power":
            base, exponent = self._polynomial(value.args[0], data), scalar_of(value.args[1])
            if base is None or exponent not in (1.0, 2.0, 3.0):
                return None
            result: Polynomial | None = {0: 1.0}
            for _ in range(int(exponent)):
                result = _product(result, base)
            return result
        if name not in ("add", "multiply", "divide"):
            return None
        left, right = (self._polynomial(argument, data) for argument in value.args)
        if left is None or right is None:
            return None
        if name == "add":
            return {d: left.get(d, 0.0) + right.get(d, 0.0) for d in {*left, *right}}
        if name == "multiply":
            return _product(left, right)
        divisor = right.get(0, 0.0)
        if set(right) != {0} or divisor == 0.0:
            return None
        return {degree: factor / divisor for degree, factor in left.items()}


def _tolerance(expr: relax.Expr) -> float:
    return OF_HALVES if dtype_of(expr) == "float16" else TOLERANCE


def _product(left: Polynomial | None, right: Polynomial) -> Polynomial | None:
    if left is None or max(left) + max(right) > MAX_DEGREE:
        return None
    result: Polynomial = {}
    for i, a in left.items():
        for j, b in right.items():
            result[i + j] = result.get(i + j, 0.0) + a * b
    return result


def _close(found: Polynomial, wanted: Polynomial, tolerance: float) -> bool:
    nonzero = {degree: factor for degree, factor in found.items() if factor != 0.0}
    return nonzero.keys() == wanted.keys() and all(
        math.isclose(nonzero[degree], wanted[degree], rel_tol=tolerance) for degree in wanted
    )


RecognizeGelu = call_pass("RecognizeGelu", 0, _Recognize)


class _RecognizeSilu(CallRule):
    """Replace x * sigmoid(x) by `nn.silu`."""

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name != "multiply":
            return None
        left, right = call.args
        for data, gate in ((left, right), (right, left)):
            sigmoid = self.scope.match_call(gate, "sigmoid")
            if sigmoid is not None and sigmoid.args[0].same_as(data) and self.scope.used_once(gate):
                return relax.op.nn.silu(data)
        return None


RecognizeSilu = call_pass("RecognizeSilu", 1, _RecognizeSilu)
