"""Recognize layer norm that an exporter decomposed."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from .constants import array_of, constant, dtype_of, integers, scalar_of, static_shape
from .rewrite import CallRule, call_pass, operator_name


class _Recognize(CallRule):
    """Replace a spelled-out layer norm by `nn.layer_norm`.

    1. d / sqrt(mean(d * d) + epsilon), with d = x - mean(x) and both means over the same trailing
       axes, is the layer norm of x with gamma 1 and beta 0. The square may be a `power` of 2 or a
       `square`, `d` may be computed twice, the division may be a multiplication by `rsqrt` or by
       a reciprocal.
    2. A multiplication of such a layer norm by a tensor of the normalized shape is its gamma.
    3. An addition of a tensor of the normalized shape is its beta.

        before   m = mean(x, axis=[-1], keepdims=True)
                 d = subtract(x, m)
                 v = mean(power(d, 2), axis=[-1], keepdims=True)
                 n = divide(d, sqrt(add(v, 1e-5)))
                 y = add(multiply(n, gamma), beta)
        after    y = nn.layer_norm(x, gamma, beta, axes=[-1], epsilon=1e-5)
    """

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name in ("divide", "multiply"):
            found = self._normalized(call, name)
            if found is not None:
                return found
        if name in ("multiply", "add"):
            left, right = call.args
            found = self._affine(left, right, name)
            return self._affine(right, left, name) if found is None else found
        return None

    def _normalized(self, call: relax.Call, name: str) -> relax.Expr | None:
        left, right = call.args
        if name == "divide":
            return self._match(left, self._square_root(right))
        found = self._match(left, self._inverse_root(right))
        return self._match(right, self._inverse_root(left)) if found is None else found

    def _square_root(self, expr: Any) -> Any | None:
        """v of an expression that is sqrt(v)."""
        value = self.scope.definition(expr)
        if operator_name(value) == "sqrt":
            return value.args[0]
        if operator_name(value) == "power" and scalar_of(value.args[1]) == 0.5:
            return value.args[0]
        return None

    def _inverse_root(self, expr: Any) -> Any | None:
        """v of an expression that is 1 / sqrt(v)."""
        value = self.scope.definition(expr)
        name = operator_name(value)
        if name == "rsqrt" or (name == "power" and scalar_of(value.args[1]) == -0.5):
            return value.args[0]
        if name == "divide" and scalar_of(value.args[0]) == 1.0:
            return self._square_root(value.args[1])
        return None

    def _match(self, centered: Any, under_root: Any | None) -> relax.Expr | None:
        """The layer norm whose numerator is `centered` and whose root is of `under_root`."""
        total = self.scope.match_call(under_root, "add") if under_root is not None else None
        if total is None:
            return None
        variance, epsilon = total.args
        if scalar_of(epsilon) is None:
            variance, epsilon = epsilon, variance
        epsilon_value = scalar_of(epsilon)
        mean_of_squares = self.scope.match_call(variance, "mean")
        difference = self.scope.match_call(centered, "subtract")
        if epsilon_value is None or mean_of_squares is None or difference is None:
            return None
        data = difference.args[0]
        mean = self.scope.match_call(difference.args[1], "mean")
        axes = _trailing_axes(mean, data)
        if mean is None or axes is None or axes != _trailing_axes(mean_of_squares, data):
            return None
        if not self._same(mean.args[0], data):
            return None
        root = self._squared(mean_of_squares.args[0])
        if root is None or not self._is_difference(root, centered, data, axes):
            return None
        shape = static_shape(data)
        assert shape is not None
        normal = shape[len(shape) - len(axes) :]
        dtype = dtype_of(data)
        return relax.op.nn.layer_norm(
            data,
            constant(np.ones(normal, dtype)),
            constant(np.zeros(normal, dtype)),
            axes=list(axes),
            epsilon=epsilon_value,
        )

    def _squared(self, expr: Any) -> Any | None:
        """d of an expression that is d squared."""
        value = self.scope.definition(expr)
        name = operator_name(value)
        if name == "square" or (name == "power" and scalar_of(value.args[1]) == 2.0):
            return value.args[0]
        if name == "multiply" and self._same(value.args[0], value.args[1]):
            return value.args[0]
        return None

    def _is_difference(self, expr: Any, centered: Any, data: Any, axes: tuple[int, ...]) -> bool:
        """Whether `expr` is x - mean(x): `centered` itself, or computed a second time."""
        if self._same(expr, centered):
            return True
        difference = self.scope.match_call(expr, "subtract")
        if difference is None or not self._same(difference.args[0], data):
            return False
        mean = self.scope.match_call(difference.args[1], "mean")
        if mean is None or _trailing_axes(mean, data) != axes:
            return False
        return self._same(mean.args[0], data)

    def _same(self, left: Any, right: Any) -> bool:
        return bool(self.scope.definition(left).same_as(self.scope.definition(right)))

    def _affine(self, normalized: Any, operand: Any, name: str) -> relax.Expr | None:
        """`normalized`, a layer norm without gamma or beta, with `operand` as one of them."""
        norm = self.scope.match_call(normalized, "nn.layer_norm")
        if norm is None or not self.scope.used_once(normalized):
            return None
        data, gamma, beta = norm.args
        if scalar_of(beta) != 0.0 or (name == "multiply" and scalar_of(gamma) != 1.0):
            return None
        parameter = _of_shape(operand, static_shape(gamma))
        if (
            operand.ty.ndim > data.ty.ndim
            or parameter is None
            or dtype_of(operand) != dtype_of(data)
        ):
            return None
        gamma, beta = (parameter, beta) if name == "multiply" else (gamma, parameter)
        axes = [int(axis) for axis in norm.attrs.axes]
        return relax.op.nn.layer_norm(data, gamma, beta, axes, float(norm.attrs.epsilon))


def _trailing_axes(mean: relax.Call | None, data: Any) -> tuple[int, ...] | None:
    """Axes of a keepdims mean over the last axes of `data`, as negative numbers; else None."""
    shape = static_shape(data)
    if mean is None or shape is None or not bool(mean.attrs.keepdims) or mean.attrs.axis is None:
        return None
    axes = integers(mean.attrs.axis)
    if axes is None:
        return None
    found = tuple(sorted(axis % len(shape) - len(shape) for axis in axes))
    return found if found == tuple(range(-len(found), 0)) and found else None


def _of_shape(expr: Any, shape: tuple[int, ...] | None) -> relax.Expr | None:
    """`expr` as a tensor of `shape`, leading ones dropped and a scalar constant spread; or None."""
    given = static_shape(expr)
    if shape is None or given is None:
        return None
    if given == shape:
        return expr
    array = array_of(expr)
    if array is not None and array.size == 1:
        return constant(np.broadcast_to(array.reshape(()), shape))
    lead = len(given) - len(shape)
    if lead > 0 and given[lead:] == shape and all(extent == 1 for extent in given[:lead]):
        return relax.op.reshape(expr, shape) if array is None else constant(array.reshape(shape))
    return None


RecognizeLayerNorm = call_pass("RecognizeLayerNorm", 1, _Recognize)
