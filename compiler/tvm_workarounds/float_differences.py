"""Keeps differences of floats that TVM's simplifier cancels: it takes (x + y) - y for x.

    (x + 12582912) - 12582912       rounds x to an integer; TVM makes x of it
    x - x, (x + y) - y, y - (x + y)  likewise, also where they are NaN or infinite

TVM 0.27 simplifies them in every lowering, of integers and of floats alike. Sums with -1 as a
factor are left alone, and LLVM makes one subtraction of them again.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad


def keep_differences(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with a - b as a + b * -1 where the operands may cancel."""

    def replace(difference: tirx.Sub) -> Any:
        a, b = difference.a, difference.b
        dtype = str(difference.ty.dtype)
        if "float" not in dtype or not _may_cancel(a, b):
            return difference
        return a + b * tirx.const(-1.0, dtype)

    body = tvm_ffi.structural_map(func.body, (tirx.Sub, replace))
    return func if body.same_as(func.body) else func.with_body(body)


def _may_cancel(a: Any, b: Any) -> bool:
    """Whether indices that lowering makes equal, or constants, can make the operands alike."""
    if isinstance(a, tirx.Add) or isinstance(b, tirx.Add):
        return True
    if isinstance(a, TensorLoad) and isinstance(b, TensorLoad):
        return bool(a.source.same_as(b.source))
    return type(a) is type(b) and tvm_ffi.structural_equal(a, b)
