"""Sort keys for floats that order NaN after infinity, as numpy, ONNX and onnxruntime do.

Float comparisons with NaN are false, which leaves a sorting algorithm without an order. The keys
are integers in the same order as the floats; all NaNs have equal keys.

    float     NaN       inf ... 1.0 ... 0.0 = -0.0 ... -1.0 ... -inf
    key    those of   the bits without the sign   and    minus those
           inf + 1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx, topi

Expr = Any


def key(value: Expr) -> Expr:
    """A float's int32 (16, 32 bits) or int64 key, in its sort order; never the lowest integer."""
    dtype = str(value.ty.dtype)
    wide, integer = ("float64", "int64") if dtype == "float64" else ("float32", "int32")
    infinity = np.array(np.inf, wide).view(integer).item()
    lowest = np.array(-np.inf, wide).view(integer).item()
    bits = tirx.reinterpret(integer, value.astype(wide))
    magnitude = tirx.bitwise_and(bits, tirx.max_value(integer))
    # With the sign, only NaNs exceed the bits of minus infinity. One selection: each nested one
    # costs TVM's simplifiers several times as long.
    number_or_nan = tirx.Min(magnitude, tirx.const(infinity + 1, integer))
    return tirx.Select(bits <= tirx.const(lowest, integer), -magnitude, number_or_nan)


def keys(data: te.Tensor) -> te.Tensor:
    return te.compute(data.shape, lambda *i: key(data(*i)), name="keys", tag=topi.tag.ELEMWISE)


def argmax(
    data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
) -> te.Tensor:
    """Flat index of the largest element over axes; the first or last NaN where there is one."""
    return _arg_reduction(topi.argmax, comparable(data), axis, keepdims, select_last_index)


def argmin(
    data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
) -> te.Tensor:
    """Flat index of the smallest element over axes; the first or last NaN where there is one."""
    if _is_float(data):
        return argmax(topi.negative(data), axis, keepdims, select_last_index)
    return _arg_reduction(topi.argmin, comparable(data), axis, keepdims, select_last_index)


def _arg_reduction(
    function: Any, data: te.Tensor, axis: Any, keepdims: bool, select_last_index: bool
) -> te.Tensor:
    found = function(data, axis, keepdims, select_last_index)
    if str(data.dtype) != "int64":
        return found
    # TOPI starts with the index -1 of the lowest int64, which precedes others of that value.
    return topi.maximum(found, tirx.const(0, found.dtype))


def comparable(data: te.Tensor) -> te.Tensor:
    """Integers with sign of the same order, with lower and higher ones if a dtype has them."""
    if _is_float(data):
        return keys(data)
    if str(data.dtype) == "uint64":
        lowest = tirx.min_value("int64")
        return te.compute(
            data.shape,
            lambda *i: tirx.bitwise_xor(tirx.reinterpret("int64", data(*i)), lowest),
            name="keys",
            tag=topi.tag.ELEMWISE,
        )
    bits = tirx.max_value(str(data.dtype)).value.bit_length() if str(data.dtype) != "bool" else 1
    return topi.cast(data, "int32" if bits < 31 else "int64")


def _is_float(data: te.Tensor) -> bool:
    return str(data.dtype).startswith(("float", "bfloat"))
