"""Accumulate half-precision sums in float32 and round once, in one kernel with the casts.

float16 ends at 65504 and cannot represent odd integers above 2048. Graphs for CPUs already use
float32 (`fp32_accumulation`); GPU schedules accumulate matmuls and convolutions in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, topi

from ...ir.op_facts import SUMS_IN_FLOAT32, all_facts
from .fp32_accumulation import HALVES

Legalize = Callable[[Any, relax.Call], relax.Expr]

SUMS = [f"relax.{each.name}" for each in all_facts() if each.half == SUMS_IN_FLOAT32]


def in_float32(name: str, legalize: Legalize | None) -> Legalize:
    """Wrap a legalization, TVM's by default, to sum in float32."""
    legalize = legalize or tvm.ir.Op.get(name).get_attr("FLegalize")

    def widened(builder: Any, call: relax.Call) -> relax.Expr:
        is_half = isinstance(call.ty, relax.TensorType) and str(call.ty.dtype) in HALVES
        return legalize(_Widening(builder) if is_half else builder, call)

    return widened


def grouped_conv2d(builder: Any, call: relax.Call) -> relax.Expr:
    """TVM's legalization of a convolution; sums of half precision in float32 if it has groups."""
    stock = tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")
    if int(call.attrs.groups) == 1 or str(call.ty.dtype) not in HALVES:
        return stock(builder, call)
    names = (
        *("strides", "padding", "dilation", "groups"),
        *("data_layout", "kernel_layout", "out_layout"),
    )
    attrs = {name: getattr(call.attrs, name) for name in names}
    wide = relax.op.nn.conv2d(*call.args, **attrs, out_dtype="float32")
    sums = builder.emit(stock(builder, builder.normalize(wide)))
    return builder.call_te(topi.cast, sums, str(call.ty.dtype))


class _Widening:
    """A block builder whose computes take float32 for half-precision operands and round results."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def call_te(self, function: Callable[..., te.Tensor], *args: Any, **options: Any) -> Any:
        @functools.wraps(function)
        def compute(*args: Any, **options: Any) -> te.Tensor:
            halves = [each.dtype for each in args if _is_half(each)]
            wide = (topi.cast(each, "float32") if _is_half(each) else each for each in args)
            result = function(*wide, **options)
            return topi.cast(result, halves[0]) if halves else result

        return self._builder.call_te(compute, *args, **options)


def _is_half(value: Any) -> bool:
    return isinstance(value, te.Tensor) and str(value.dtype) in HALVES
