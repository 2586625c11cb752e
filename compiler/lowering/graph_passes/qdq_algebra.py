"""Quantized tensors, and arithmetic between them and floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from ...ir.constants import array_of, constant, dtype_of
from ...ir.op_dialect import RELAX
from ...ir.op_facts import facts_of
from ...ir.rewrite import CallRule, Scope

BYTE_TYPES = ("uint8", "int8")
MOST_INT32 = float(2**31)


@dataclass(frozen=True)
class Quantized:
    """Integers that represent (data - zero) * scale."""

    data: relax.Expr
    scale: np.ndarray  # float32 and int32; scalars, or one element for each index along `axis`
    zero: np.ndarray
    axis: int

    def alike(self, other: Quantized) -> bool:
        """Whether both have the same dtype, scale and zero point."""
        return (
            dtype_of(self.data) == dtype_of(other.data)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero, other.zero)
            and (self.scale.ndim == self.zero.ndim == 0 or self.axis == other.axis)
        )

    @property
    def is_whole(self) -> bool:
        """Whether all elements share one scale and one zero point."""
        return self.scale.ndim == self.zero.ndim == 0


@dataclass(frozen=True)
class Sum:
    """float32(total + offset) * scale of int32 sums; offset and scale broadcast."""

    total: relax.Expr
    offset: np.ndarray
    scale: np.ndarray


class QuantizedRule(CallRule):
    """Queries that the quantization rules share."""

    def dequantized(self, expr: Any) -> Quantized | None:
        """The quantized tensor that `expr` dequantizes with constant scale and zero point."""
        call = self.scope.match_call(expr, "dequantize")
        return None if call is None else self.numbers(call, call.args[0])

    def numbers(self, call: relax.Call, data: relax.Expr) -> Quantized | None:
        """`data` with the scale and zero point of a quantize or dequantize call."""
        scale, zero = (array_of(self.scope.definition(arg)) for arg in call.args[1:])
        if scale is None or zero is None or zero.dtype.kind not in "iu":
            return None
        if dtype_of(call) not in ("float32", *BYTE_TYPES):
            return None
        if dtype_of(call.args[0]) in ("float16", "bfloat16", "float64"):
            return None
        scale, zero = (each.reshape(()) if each.size == 1 else each for each in (scale, zero))
        is_usable = bool(np.all(np.isfinite(scale) & (scale > 0)))
        if not is_usable or max(scale.ndim, zero.ndim) > 1:
            return None
        axis = int(call.attrs.axis) % max(data.ty.ndim, 1)
        return Quantized(data, scale.astype("float32"), zero.astype("int32"), axis)


class Readers(QuantizedRule):
    """Dequantize separately for each reader, so that it fuses with the reader."""

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name == "dequantize":
            return None
        operands = [self._operand(arg) for arg in call.args]
        if all(new.same_as(old) for new, old in zip(operands, call.args)):
            return None
        return RELAX.again(call, operands)

    def _operand(self, arg: relax.Expr) -> relax.Expr:
        fields = self.scope.definition(arg) if isinstance(arg.ty, relax.TupleType) else None
        if isinstance(fields, relax.Tuple):
            made = [self._operand(field) for field in fields.fields]
            kept = all(new.same_as(old) for new, old in zip(made, fields.fields))
            return arg if kept else relax.Tuple(made)
        given = self.dequantized(arg)
        if given is None:
            return arg
        known = array_of(self.scope.definition(given.data))
        if known is not None:
            return constant(values_of(known, given))
        value = self._quantized_here(given)
        if value is not None and self.scope.used_once(arg) and self.scope.used_once(given.data):
            return self.scope.emit(_rounded_real(value, given))
        return self.scope.emit(real(self.scope.emit(relax.op.astype(given.data, "float32")), given))

    def _quantized_here(self, given: Quantized) -> relax.Expr | None:
        """The operand of a quantize whose parameters equal those of the dequantize."""
        quantize = self.scope.match_call(given.data, "quantize")
        own = None if quantize is None else self.numbers(quantize, given.data)
        is_same = own is not None and own.is_whole and own.alike(given)
        return quantize.args[0] if quantize is not None and is_same else None


class Arithmetic(QuantizedRule):
    """Lowers the remaining quantize and dequantize calls to arithmetic."""

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in ("quantize", "dequantize"):
            return None
        own = self.numbers(call, call.args[0])
        if own is None:
            return None
        if name == "dequantize":
            return real(self.scope.emit(relax.op.astype(own.data, "float32")), own)
        info, rank = np.iinfo(dtype_of(call)), own.data.ty.ndim
        scale, zero = (along(each, rank, own.axis) for each in (own.scale, own.zero))
        value = relax.op.divide(own.data, constant(scale))
        if own.is_whole and largest(self, own.data) / float(own.scale) < MOST_INT32 / 2:
            bounds = (int(own.zero), int(info.min), int(info.max))
            return rounded(self.scope, value, *bounds, dtype_of(call))
        steps = relax.op.round(value)
        if np.any(zero):
            steps = relax.op.add(steps, constant(zero.astype("float32")))
        return relax.op.astype(relax.op.clip(steps, int(info.min), int(info.max)), dtype_of(call))


def scaled(scope: Scope, total: relax.Expr, factor: np.ndarray) -> relax.Expr:
    """float32(total) * factor."""
    whole = scope.emit(relax.op.astype(scope.emit(total), "float32"))
    return relax.op.multiply(whole, constant(factor))


def sum_of(rule: QuantizedRule, expr: relax.Expr) -> Sum | None:
    """The int32 sums from which `scaled` computed `expr`."""
    product = rule.scope.match_call(expr, "multiply")
    cast = None if product is None else rule.scope.match_call(product.args[0], "astype")
    total = None if cast is None else rule.scope.match_call(cast.args[0], "add")
    if product is None or total is None or dtype_of(total) != "int32":
        return None
    scale, offset = array_of(product.args[1]), array_of(total.args[1])
    if scale is None or offset is None:
        return None
    return Sum(total.args[0], offset.astype("int64"), scale)


def rounded(
    scope: Scope, value: relax.Expr, zero: int, low: int, high: int, dtype: str
) -> relax.Expr:
    """clip(round(value) + zero) in integers; the value must fit int32."""
    whole = scope.emit(relax.op.astype(relax.op.round(value), "int32"))
    if zero:
        whole = relax.op.add(whole, relax.const(zero, "int32"))
    return relax.op.astype(relax.op.clip(whole, low, high), dtype)


def _rounded_real(value: relax.Expr, own: Quantized) -> relax.Expr:
    """dequantize(quantize(value)) without integers."""
    info, zero = np.iinfo(dtype_of(own.data)), int(own.zero)
    steps = relax.op.round(relax.op.divide(value, constant(own.scale)))
    steps = relax.op.clip(steps, int(info.min) - zero, int(info.max) - zero)
    return relax.op.multiply(steps, constant(own.scale))


def dequantized_as(given: Quantized, data: relax.Expr) -> relax.Expr:
    """Dequantize other integers with the single scale and zero point of `given`."""
    zero = constant(given.zero.astype(dtype_of(data)))
    return relax.op.dequantize(data, constant(given.scale), zero, 0, "float32")


def real(whole: relax.Expr, given: Quantized) -> relax.Expr:
    """(whole - zero) * scale, for integers stored in float32."""
    rank = given.data.ty.ndim
    scale, zero = (along(each, rank, given.axis) for each in (given.scale, given.zero))
    if np.any(zero):
        whole = relax.op.subtract(whole, constant(zero.astype("float32")))
    return relax.op.multiply(whole, constant(scale))


def values_of(integers: np.ndarray, given: Quantized) -> np.ndarray:
    """Dequantize constant integers to float32."""
    scale, zero = (along(each, integers.ndim, given.axis) for each in (given.scale, given.zero))
    centerd = (integers.astype("int64") - zero).astype("float32")
    return np.asarray(centerd * scale, "float32")


def along(numbers: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Reshape a vector along an axis to broadcast with a tensor of that rank."""
    if not numbers.ndim:
        return numbers
    shape = [1] * rank
    shape[axis] = -1
    return numbers.reshape(shape)


def place_of(bound: float, own: Quantized, low: int, high: int) -> int:
    """Quantize a real number."""
    if not math.isfinite(bound):
        return high if bound > 0 else low
    place = float(np.rint(np.float32(bound) / own.scale)) + int(own.zero)
    return int(min(max(place, low), high))


def is_mean(call: relax.Call) -> bool:
    """Whether averages are over full windows, or over padding that represents 0."""
    attrs = call.attrs
    return not hasattr(attrs, "padding") or (
        not any(int(side) for side in attrs.padding) and not bool(attrs.ceil_mode)
    )


def largest(rule: QuantizedRule, expr: relax.Expr, depth: int = 12) -> float:
    """An upper bound of the absolute values of a tensor; infinity if unknown."""
    known = array_of(expr)
    if known is not None:
        return float(np.abs(known.astype("float64")).max(initial=0))
    value = rule.scope.definition(expr)
    name = rule.name(value)
    if depth == 0 or not name:
        return math.inf

    def of(operand: relax.Expr) -> float:
        return largest(rule, operand, depth - 1)

    if name == "astype":
        inner = dtype_of(value.args[0])
        return _LARGEST.get(inner, math.inf) if inner in _LARGEST else of(value.args[0])
    if name == "clip":
        return max(abs(float(bound.value)) for bound in value.args[1:])
    if name in ("add", "subtract"):
        return of(value.args[0]) + of(value.args[1])
    if name in ("multiply", "maximum", "minimum"):
        left, right = (of(operand) for operand in value.args)
        return left * right if name == "multiply" else max(left, right)
    facts = facts_of(value)
    return of(value.args[0]) if facts.bounded or facts.selects else facts.bound


_LARGEST = {"uint8": 255.0, "int8": 128.0, "int32": MOST_INT32}
