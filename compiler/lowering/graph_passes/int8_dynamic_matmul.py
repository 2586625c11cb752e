"""Integer matmuls of two quantized tensors computed at run time, as in an attention.

before   matmul(dequantize(a, sa, za), dequantize(b, sb, zb))

after    p = matmul(a, b)                                uint8 by int8 in int32
         t = p - zb sum(a) - za sum(b) + k za zb         sums along the reduction axis
         t * (sa sb)                                     fused into the matmul kernel
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from schedules.x86.machine.dot_product import BYTES

from ...ir.constants import constant, dtype_of, static_shape
from ...ir.op_dialect import RELAX
from ...ir.rewrite import Scope
from .qdq_algebra import BYTE_TYPES, Quantized, QuantizedRule, scaled

_SHIFT = 128  # from uint8 to int8
_IN_PLACE = ("permute_dims", "reshape")


def product_of_both(
    rule: QuantizedRule, call: relax.Call, left: Quantized, right: Quantized
) -> relax.Expr | None:
    """Multiply dequantized tensors as integers, `left` as uint8 rows; None without one scale."""
    if not left.is_whole or not right.is_whole or dtype_of(right.data) not in BYTE_TYPES:
        return None
    scope, right = rule.scope, _signed(rule, right)
    shape = static_shape(left.data) or ()
    za, zb, depth = int(left.zero), int(right.zero), shape[-1]
    beyond = -depth % BYTES
    a, b = _longer(scope, left.data, beyond, -1), _longer(scope, right.data, beyond, -2)
    total = scope.emit(relax.op.matmul(a, b, "int32"))
    for data, axis, zero in ((left.data, -1, zb), (right.data, -2, za)):
        if zero:
            part = relax.op.multiply(_summed(rule, data, axis), relax.const(zero, "int32"))
            total = scope.emit(relax.op.subtract(total, scope.emit(part)))
    shifted = relax.op.add(total, relax.const(depth * za * zb, "int32"))
    return scaled(scope, shifted, np.asarray(left.scale * right.scale, "float32"))


def _signed(rule: QuantizedRule, given: Quantized) -> Quantized:
    """The tensor as int8, quantized as int8 where possible."""
    if dtype_of(given.data) == "int8":
        return given
    value = rule.scope.definition(given.data)
    zero = given.zero - _SHIFT
    if rule.name(value) in _IN_PLACE:
        inner = _signed(rule, replace(given, data=value.args[0]))
        data = RELAX.again(value, [inner.data, *value.args[1:]])
    elif rule.name(value) == "quantize":
        data = relax.op.quantize(
            value.args[0], value.args[1], constant(zero.astype("int8")), 0, "int8"
        )
    else:
        wide = relax.op.subtract(relax.op.astype(given.data, "int32"), relax.const(_SHIFT, "int32"))
        data = relax.op.astype(wide, "int8")
    return replace(given, data=rule.scope.emit(data), zero=zero)


def _longer(scope: Scope, data: relax.Expr, beyond: int, axis: int) -> relax.Expr:
    """Append zeros along an axis."""
    if not beyond:
        return data
    widths = [0] * (2 * len(static_shape(data) or ()))
    widths[2 * axis + 1] = beyond
    return scope.emit(relax.op.nn.pad(data, widths))


def _summed(rule: QuantizedRule, data: relax.Expr, axis: int) -> relax.Expr:
    """Sum along an axis with keepdims, computed before the tensor is permuted."""
    value = rule.scope.definition(data)
    if rule.name(value) == "permute_dims" and value.attrs.axes is not None:
        axes = list(map(int, value.attrs.axes))
        inner = _summed(rule, value.args[0], axes[axis] - len(axes))
        return rule.scope.emit(relax.op.permute_dims(inner, axes))
    wide = rule.scope.emit(relax.op.astype(data, "int32"))
    return rule.scope.emit(relax.op.sum(wide, axis, keepdims=True))
