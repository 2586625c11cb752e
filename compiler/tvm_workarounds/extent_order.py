"""Write the constant of each extent last, as TVM's analyzer does.

    before   a: Tensor((2 * n,)) made by a repeat, read by a kernel of Buffer((n * 2,))
    after    both have n * 2

FuseTIR compares extents by structure, and fails with "Inconsistent buffers" if the order differs.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx


def constants_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Turn `2 * n` into `n * 2`, and `2 + n` into `n + 2`, in modules with symbolic dimensions."""
    relax_functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    if not any(map(relax.analysis.defined_symbolic_vars, relax_functions)):
        return mod
    functions = {
        gvar: tvm_ffi.structural_map(function, ((tirx.Mul, tirx.Add), _ordered))
        for gvar, function in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _ordered(expr: Any) -> Any:
    is_reversed = isinstance(expr.a, tirx.IntImm) and not isinstance(expr.b, tirx.IntImm)
    return type(expr)(expr.b, expr.a) if is_reversed else expr
