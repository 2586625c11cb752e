"""Legalize and fuse operators into unscheduled TIR functions."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.target import Target

from ...ir.rewrite import relax_functions
from ...primfuncs.fusion_pattern import called_kernel
from ...primfuncs.kernel_operators import operators_of
from ...tvm_workarounds.alias_tuples import alias_tuples
from ...tvm_workarounds.branch_dataflow import plain_branches
from ...tvm_workarounds.extent_order import constants_last
from ...tvm_workarounds.order_shape_bindings import in_order
from ...tvm_workarounds.scalar_operands import separate_scalar_operands
from .block_broadcast_fusion import separate_spread_results
from .block_concat_fusion import separate_concatenations
from .fuse_interpolation import interpolations
from .hoist_shape_bindings import symbols_first
from .legalize import legalize_ops
from .limit_epilogue_fusion import bound_epilogues
from .limit_kernel_tensors import limit_kernel_tensors, separate_groups


def fuse(
    mod: tvm.IRModule, target: Target, concat_in_place: bool = False
) -> tuple[tvm.IRModule, dict[str, list[str]]]:
    """Legalize the remaining operators, and fuse.

    With `concat_in_place`, nothing is fused with concatenations whose parts can be written in
    place. Returns the module, in which every kernel is one unscheduled PrimFunc, and by kernel name
    the operators fused into it, under Relay's names.
    """
    with target:
        mod = interpolations(mod) if target.kind.name == "llvm" else mod
        mod = limit_kernel_tensors(mod)
        mod = relax.transform.AnnotateTIROpPattern()(constants_last(legalize_ops()(mod)))
        mod = separate_groups(mod)
        mod = bound_epilogues(separate_spread_results(separate_scalar_operands(mod)))
        mod = separate_concatenations(mod, target) if concat_in_place else mod
        mod = in_order(relax.transform.FuseOps(fuse_opt_level=2)(plain_branches(alias_tuples(mod))))
        operators = _operators(mod)
        mod = relax.transform.CanonicalizeBindings()(relax.transform.FuseTIR()(mod))
        mod = symbols_first(mod)
    return mod, operators


def _operators(mod: tvm.IRModule) -> dict[str, list[str]]:
    """Operators of each fused function, from the TIR functions that it calls."""
    names: dict[str, list[str]] = {}
    for gvar, function in mod.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            names[gvar.name_hint] = operators_of(gvar.name_hint, function)
    for gvar, function in relax_functions(mod):
        if not is_fused(function):
            continue
        names[gvar.name_hint] = [
            name
            for block in function.body.blocks
            for binding in block.bindings
            if (callee := called_kernel(binding.value)) is not None
            for name in names[callee]
        ]
    return names


def is_fused(function: relax.Function) -> bool:
    """Whether FuseOps made the function."""
    return bool(function.attrs and function.attrs.get("Primitive"))
