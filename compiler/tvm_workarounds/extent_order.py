"""Write symbolic extents in the normal form of TVM's analyzer.

    before   a: Tensor((2 * (n + 1),)) made by a repeat, read by a kernel of Buffer((n * 2 + 2,))
    after    both have n * 2 + 2

Some of TVM's passes simplify the extents that they write, others do not. FuseTIR compares extents
by structure, and fails with "Inconsistent buffers" if they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)


def normal_extents(mod: tvm.IRModule) -> tvm.IRModule:
    """Simplify expressions of symbolic dimensions, in modules that have some."""
    relax_functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    if not any(map(relax.analysis.defined_symbolic_vars, relax_functions)):
        return mod
    functions = {
        gvar: tvm_ffi.structural_map(function, (_ARITHMETIC, _simplifier(function)))
        for gvar, function in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


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
