"""Calls of functions on vectors, made one for each lane where no vector form exists.

LLVM splits the vector forms of the functions that it knows, such as the cosine. The hyperbolic sine
and cosine are plain calls of the C library, which TVM makes of scalars alone.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

_SCALAR_ONLY = frozenset({"tirx.cosh", "tirx.sinh"})


def split_scalar_calls() -> tvm.transform.Pass:
    """The pass, on lowered functions in front of the lowering of intrinsic functions."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="SplitScalarCalls")
    def split(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        return func.with_body(tvm_ffi.structural_map(func.body, (Call, _split)))

    return split


def _split(call: Call) -> Any:
    if not isinstance(call.op, Op) or call.op.name not in _SCALAR_ONLY:
        return call
    dtype = tvm.DataType(call.ty.dtype)
    if dtype.lanes == 1:
        return call
    scalar = str(dtype).removesuffix(f"x{dtype.lanes}")
    (operand,) = call.args
    lanes = [
        tirx.call_intrin(scalar, call.op.name, tirx.Shuffle([operand], [lane]))
        for lane in range(dtype.lanes)
    ]
    return tirx.Shuffle(lanes, list(range(dtype.lanes)))
