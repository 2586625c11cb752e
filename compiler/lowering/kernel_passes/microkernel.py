"""Outline the reductions that schedules mark, so that they keep their registers.

    for tile                                  for tile
      init                                      kernel_microkernel_1(x, weights, sums, tile)
      for k                          -->        epilogue
        fma
      epilogue

LLVM hoists loop-invariant values of an epilogue, such as the coefficients of a polynomial, out of
all loops and keeps them in registers. The register tile needs these registers itself; without them
LLVM stores and loads accumulators in every step of k. `schedules.x86.machine.microkernel` documents
which reductions are marked, and the speedup.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from schedules.x86.machine.microkernel import MARK

# TVM's code generator for CPUs makes a function, which LLVM may not inline, of such a statement.
_FUNCTION = "compute_scope"


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="OutlineMicrokernels")
def outline_microkernels(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions: flat buffers, explicit vectors, no blocks."""
    symbol = str(func.attrs["global_symbol"])
    count = 0

    def replace(attr: tirx.AttrStmt) -> tirx.Stmt:
        nonlocal count
        if attr.attr_key != MARK:
            return attr
        count += 1
        name = tvm.ir.StringImm(f"{symbol}_microkernel_{count}")
        call = tirx.AttrStmt(attr.node, _FUNCTION, name, attr.body)
        # TVM's code generator keeps the function's place in the debug information until the next
        # statement; LLVM rejects it for the step of an outer loop. Statements that evaluate 0 are
        # dropped.
        return tirx.SeqStmt([call, tirx.Evaluate(1)])

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AttrStmt, replace)))
