"""Remove narrowing casts to (u)int8 whose value range makes them no-ops.

    cast(float32, cast(uint8, x))  ->  cast(float32, x)        x within 0 and 255

A requantized sum that a residual sum reads is clipped, narrowed and widened again: narrowing and
widening vectors takes more instructions than everything else between them.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="DropNeedlessCasts")
def drop_needless_casts(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, before functions are lowered and after the passes that match bytes."""
    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.Cast, _wide)))


def _wide(cast: tirx.Cast) -> Any:
    narrow = cast.value
    if str(cast.ty.dtype) != "float32" or not isinstance(narrow, tirx.Cast):
        return cast
    kind = str(narrow.ty.dtype)
    if kind not in ("uint8", "int8") or str(narrow.value.ty.dtype) != "int32":
        return cast
    bound = sym.Analyzer().const_int_bound(narrow.value)
    least, most = (0, 255) if kind == "uint8" else (-128, 127)
    is_within = least <= bound.min_value and bound.max_value <= most
    return tirx.Cast(cast.ty.dtype, narrow.value) if is_within else cast
