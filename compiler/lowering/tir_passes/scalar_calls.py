"""Calls of functions on vectors, made one for each lane where no vector form exists.

LLVM splits the vector forms of the functions that it knows, such as the cosine. The hyperbolic sine
and cosine are plain calls of the C library, which TVM makes of scalars alone, and the remainder of
floats is one that TVM doesn't make for CPUs at all.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

_SCALAR_ONLY = frozenset({"tirx.cosh", "tirx.fmod", "tirx.sinh"})
_C_REMAINDERS = {"float32": "fmodf", "float64": "fmod"}


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
    scalar = str(dtype).removesuffix(f"x{dtype.lanes}")
    if dtype.lanes == 1:
        return _scalar(call, scalar, list(call.args))
    lanes = [
        _scalar(call, scalar, [tirx.Shuffle([operand], [lane]) for operand in call.args])
        for lane in range(dtype.lanes)
    ]
    return tirx.Shuffle(lanes, list(range(dtype.lanes)))


def _scalar(call: Call, dtype: str, operands: list[Any]) -> Any:
    if call.op.name == "tirx.fmod":
        return tirx.call_pure_extern(dtype, _C_REMAINDERS[dtype], *operands)
    return tirx.call_intrin(dtype, call.op.name, *operands)
