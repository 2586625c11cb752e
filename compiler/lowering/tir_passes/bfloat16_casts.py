"""Has a cast to bfloat16 round where a cast from it follows in the same expression.

TVM computes with bfloat16 in float32, and rounds where a value is stored. A cast to bfloat16 and
back within one kernel, which is how scripts see what the type loses, left the number as it was.
Before TVM's pass, this one writes

    cast(cast(x, bfloat16), t)  ->  cast(rounded(x), t)

with `rounded` on the bits of a float32: to the nearest, ties to even, NaNs as they are.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def round_bfloat16_casts() -> tvm.transform.Pass:
    """The pass, on functions in front of the lowering."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="RoundBFloat16Casts")
    def round_casts(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        return func.with_body(tvm_ffi.structural_map(func.body, (tirx.Cast, _rounding)))

    return round_casts


def _rounding(node: tirx.Cast) -> Any:
    inner = node.value
    if not isinstance(inner, tirx.Cast) or _dtype(inner) != "bfloat16":
        return node
    if _dtype(inner.value) == "bfloat16" or _dtype(node) == "bfloat16":
        return node
    return tirx.Cast(_dtype(node), _rounded(tirx.Cast("float32", inner.value)))


def _dtype(expr: Any) -> str:
    return str(expr.ty.dtype)


def _rounded(value: Any) -> Any:
    """The nearest float32 whose lower 16 bits are zeros."""
    bits = tirx.reinterpret("uint32", value)
    last = tirx.bitwise_and(tirx.shift_right(bits, _word(16)), _word(1))
    kept = tirx.bitwise_and(bits + _word(0x7FFF) + last, _word(0xFFFF0000))
    return tirx.Select(value == value, tirx.reinterpret("float32", kept), value)


def _word(number: int) -> Any:
    return tirx.const(number, "uint32")
