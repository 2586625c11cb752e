"""From operators to fused, unscheduled TIR functions."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.target import Target

from ...op_pattern import called_kernel
from ...tvm_faults.alias_tuples import alias_tuples
from .bounded_epilogues import bound_epilogues
from .legalize import legalize_ops
from .separate_concat import separate_concatenations
from .spread_results import separate_spread_results

OPERATORS = "baton.operators"
"""Attribute of a kernel that was made elsewhere: the operators it computes, between blanks."""

_ENDING_IN_DIGITS = ("atan2", "log10", "log2")
"""Operators whose names end like the number that tells kernels of one name apart."""


def fuse(
    mod: tvm.IRModule, target: Target, concat_in_place: bool = False
) -> tuple[tvm.IRModule, dict[str, list[str]]]:
    """Legalise what is left at operator level, and fuse.

    Parameters
    ----------
    concat_in_place
        Nothing is fused with concatenations whose parts can be written where they belong.

    Returns
    -------
    The module, in which every kernel is one unscheduled PrimFunc, and for each kernel's name
    the names of the operators that went into it.
    """
    with target:
        mod = relax.transform.AnnotateTIROpPattern()(legalize_ops()(mod))
        mod = bound_epilogues(separate_spread_results(mod))
        mod = separate_concatenations(mod, target) if concat_in_place else mod
        mod = relax.transform.FuseOps(fuse_opt_level=2)(alias_tuples(mod))
        operators = _operators(mod)
        mod = relax.transform.CanonicalizeBindings()(relax.transform.FuseTIR()(mod))
    return mod, operators


def _operators(mod: tvm.IRModule) -> dict[str, list[str]]:
    """Operators of each fused function, from the TIR functions that it calls."""
    names: dict[str, list[str]] = {}
    for gvar, function in mod.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            given = function.attrs.get(OPERATORS) if function.attrs else None
            own = [_own_name(gvar.name_hint, function)] if given is None else str(given).split()
            names[gvar.name_hint] = own
    for gvar, function in mod.functions_items():
        if not isinstance(function, relax.Function) or not is_fused(function):
            continue
        names[gvar.name_hint] = [
            name
            for block in function.body.blocks
            for binding in block.bindings
            if (callee := called_kernel(binding.value)) is not None
            for name in names[callee]
        ]
    return names


def _own_name(kernel: str, function: tvm.tirx.PrimFunc) -> str:
    """The operator of an unfused kernel; log2 is one, or the third kernel of log."""
    for name in _ENDING_IN_DIGITS:
        if kernel.removeprefix("tir_").startswith(name) and f"{name}(" in str(function):
            return name
    return operator_name(kernel)


def is_fused(function: relax.Function) -> bool:
    """Whether FuseOps made the function."""
    return bool(function.attrs and function.attrs.get("Primitive"))


def operator_name(kernel: str) -> str:
    """conv2d12 -> conv2d, tir_clip -> clip: legalisation's prefix and digits say nothing."""
    return kernel.rstrip("0123456789").removeprefix("tir_")
