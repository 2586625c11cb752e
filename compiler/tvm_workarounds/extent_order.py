"""Write an extent in one way, as FuseTIR compares extents by structure.

    before   a: Tensor((2 * n,)) made by a repeat, read by a kernel of Buffer((n * 2,))
    after    both have n * 2

Some of TVM's passes simplify the extents that they write, others do not. FuseTIR fails with
"Inconsistent buffers" if they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)


def constants_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Turn `2 * n` into `n * 2`, and `2 + n` into `n + 2`, in modules with symbolic dimensions."""
    return _with_extents(mod, lambda _: ((tirx.Mul, tirx.Add), _ordered))


def fuse_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Merge the kernels of each fused function, as FuseTIR does.

    Extents are only simplified if they differ: factors help to simplify indices.
    """
    try:
        return relax.transform.FuseTIR()(mod)
    except tvm.error.InternalError as error:
        if "Inconsistent buffers" not in str(error):
            raise
        simplified = _with_extents(mod, lambda function: (_ARITHMETIC, _simplifier(function)))
        return relax.transform.FuseTIR()(simplified)


def _with_extents(mod: tvm.IRModule, rewrite: Callable[[Any], Any]) -> tvm.IRModule:
    """Rewrite the expressions in modules with symbolic dimensions."""
    relax_functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    if not any(map(relax.analysis.defined_symbolic_vars, relax_functions)):
        return mod
    functions = {
        gvar: tvm_ffi.structural_map(function, rewrite(function))
        for gvar, function in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _ordered(expr: Any) -> Any:
    is_reversed = isinstance(expr.a, tirx.IntImm) and not isinstance(expr.b, tirx.IntImm)
    return type(expr)(expr.b, expr.a) if is_reversed else expr


def _simplifier(function: Any) -> Callable[[Any], Any]:
    """Callback that simplifies expressions of the symbols of a function, and of nothing else."""
    analyzer, symbols = sym.Analyzer(), _symbols(function)

    def simplify(expr: Any) -> Any:
        used = tirx.analysis.undefined_vars(expr)
        return analyzer.simplify(expr) if used and symbols.issuperset(used) else expr

    return simplify


def _symbols(function: Any) -> set[tirx.Var]:
    """Symbolic dimensions in a kernel's parameters, or anywhere in a Relax function."""
    found: set[tirx.Var] = set()

    def note(var: tirx.Var) -> None:
        if isinstance(var.ty, tvm.ir.PrimType):
            found.add(var)

    if isinstance(function, relax.Function):
        tvm_ffi.structural_walk(function, (tirx.Var, note))
        return found
    for parameter in function.params:
        note(parameter)
        for extent in getattr(parameter.ty, "shape", ()):
            found.update(tirx.analysis.undefined_vars(extent))
    return found
