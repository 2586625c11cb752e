"""Round to nearest, ties to even, with vector instructions.

    nearbyint(x)               ->  llvm.nearbyint(x)
    cast(int32, nearbyint(x))  ->  llvm.lrint(x)           one instruction

TVM computes `nearbyint` by lane: its vectorizer does not know that it works element by element.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from ...primfuncs.query import op_name

_FLOATS = ("float32", "float64")


def vectorize_rounding(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Name LLVM's intrinsic functions in a kernel for a CPU, before its loops become vectors."""
    body = tvm_ffi.structural_map(func.body, (tirx.Cast, _cast))
    return func.with_body(tvm_ffi.structural_map(body, (Call, _call)))


def _is_rounding(expr: Any) -> bool:
    return op_name(expr) == "tirx.nearbyint" and str(expr.ty.dtype) in _FLOATS


def _cast(cast: tirx.Cast) -> Any:
    if str(cast.ty.dtype) != "int32" or not _is_rounding(cast.value):
        return cast
    return tirx.call_llvm_pure_intrin("int32", "llvm.lrint", cast.value.args[0])


def _call(call: Call) -> Any:
    if not _is_rounding(call):
        return call
    return tirx.call_llvm_pure_intrin(str(call.ty.dtype), "llvm.nearbyint", call.args[0])
