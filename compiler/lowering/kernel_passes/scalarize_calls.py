"""Split vector calls of functions without a vector form into one call per lane.

LLVM splits vector forms of functions that it knows, such as the cosine. TVM lowers the hyperbolic
sine and cosine to C library calls, but only for scalars, and the float remainder not at all on
CPUs. TVM's tanh and atanh subtract numbers near 1, which loses all digits of a small operand: they
become C library calls, too, unless replaced by `FastMath`. Functions without a float16 form use
float32.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from ...primfuncs.query import op_name

_SCALAR_ONLY = frozenset({"tirx.cosh", "tirx.fmod", "tirx.sinh"})
_WITHOUT_HALF = _SCALAR_ONLY | {
    f"tirx.{name}" for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "tan")
}
_C_FUNCTIONS = {
    (f"tirx.{name}", dtype): name + suffix
    for name in ("atanh", "fmod", "tanh")
    for dtype, suffix in (("float32", "f"), ("float64", ""))
}


_NAMES = _WITHOUT_HALF | {name for name, _ in _C_FUNCTIONS}


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="SplitScalarCalls")
def split_scalar_calls(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions before intrinsic functions are lowered."""
    return func.with_body(tvm_ffi.structural_map(func.body, (Call, _split)))


def _split(call: Call) -> Any:
    name = op_name(call)
    if name not in _NAMES:
        return call
    dtype = tvm.DataType(call.ty.dtype)
    scalar = str(dtype).removesuffix(f"x{dtype.lanes}")
    if scalar == "float16" and name in _WITHOUT_HALF:
        wide = str(dtype).replace("float16", "float32")
        operands = [tirx.Cast(wide, operand) for operand in call.args]
        return tirx.Cast(str(dtype), _split(tirx.call_intrin(wide, name, *operands)))
    if name not in _SCALAR_ONLY and (name, scalar) not in _C_FUNCTIONS:
        return call
    if dtype.lanes == 1:
        return _scalar(call, scalar, list(call.args))
    lanes = [
        _scalar(call, scalar, [tirx.Shuffle([operand], [lane]) for operand in call.args])
        for lane in range(dtype.lanes)
    ]
    return tirx.Shuffle(lanes, list(range(dtype.lanes)))


def _scalar(call: Call, dtype: str, operands: list[Any]) -> Any:
    name = _C_FUNCTIONS.get((call.op.name, dtype))
    if name is not None:
        return tirx.call_pure_extern(dtype, name, *operands)
    return tirx.call_intrin(dtype, call.op.name, *operands)
