"""Protect float differences that TVM's simplifier cancels: it rewrites (x + y) - y to x.

    (x + 12582912) - 12582912       rounds x to an integer; TVM simplifies it to x
    x - x, (x + y) - y, y - (x + y)  likewise, also for NaN and infinities

TVM 0.27 simplifies them in every lowering, for integers and floats alike. It leaves sums with a
factor of -1 alone, and LLVM turns them back into one subtraction.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad


def keep_differences(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Rewrite a - b to a + b * -1 where the operands may cancel."""

    def replace(difference: tirx.Sub) -> Any:
        a, b = difference.a, difference.b
        dtype = str(difference.ty.dtype)
        if "float" not in dtype or not _may_cancel(a, b):
            return difference
        return a + b * tirx.const(-1.0, dtype)

    body = tvm_ffi.structural_map(func.body, (tirx.Sub, replace))
    return func if body.same_as(func.body) else func.with_body(body)


def _may_cancel(a: Any, b: Any) -> bool:
    """Whether the operands may be equal once lowering makes indices equal, or for constants."""
    if isinstance(a, tirx.Add) or isinstance(b, tirx.Add):
        return True
    if isinstance(a, TensorLoad) and isinstance(b, TensorLoad):
        return bool(a.source.same_as(b.source))
    return type(a) is type(b) and tvm_ffi.structural_equal(a, b)
