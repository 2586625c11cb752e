"""Legalize and fuse operators into unscheduled TIR functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import tvm
from tvm import relax
from tvm.target import Target

from ...ir.rewrite import relax_functions, with_functions
from ...ir.spans import source_name, sources_by_name, with_call_sources
from ...primfuncs.fusion_pattern import called_kernel
from ...primfuncs.kernel_operators import operators_of
from ...tvm_workarounds.alias_tuples import alias_tuples
from ...tvm_workarounds.branch_dataflow import plain_branches
from ...tvm_workarounds.extent_order import constants_last, fuse_kernels
from ...tvm_workarounds.order_shape_bindings import in_order
from ...tvm_workarounds.scalar_operands import separate_scalar_operands
from .block_broadcast_fusion import separate_spread_results
from .block_concat_fusion import separate_concatenations
from .fuse_interpolation import interpolations
from .legalize import legalize_ops
from .limit_epilogue_fusion import bound_epilogues
from .limit_kernel_tensors import limit_kernel_tensors, separate_groups


def fuse(
    mod: tvm.IRModule, target: Target, concat_in_place: bool = False
) -> tuple[tvm.IRModule, dict[str, list[str]], dict[str, list[str]]]:
    """Legalize the remaining operators, and fuse.

    With `concat_in_place`, nothing is fused with concatenations whose parts can be written in
    place. Returns the module, in which every kernel is one unscheduled PrimFunc, and by kernel name
    the operators fused into it, under Relay's names, and the model's nodes that it computes.
    """
    sources = {gvar.name_hint: sources_by_name(each) for gvar, each in relax_functions(mod)}
    with target:
        mod = interpolations(mod) if target.kind.name == "llvm" else mod
        mod = limit_kernel_tensors(mod)
        mod = relax.transform.AnnotateTIROpPattern()(constants_last(legalize_ops()(mod)))
        mod = separate_groups(mod)
        mod = bound_epilogues(separate_spread_results(separate_scalar_operands(mod)))
        mod = separate_concatenations(mod, target) if concat_in_place else mod
        mod = with_functions(
            mod,
            {
                gvar: with_call_sources(function, sources[gvar.name_hint])
                for gvar, function in relax_functions(mod)
                if sources.get(gvar.name_hint)
            },
        )
        plain = plain_branches(alias_tuples(mod))
        mod = in_order(relax.transform.FuseOps(fuse_opt_level=2)(plain))
        operators, nodes = _operators(mod), kernel_sources(plain, mod)
        mod = relax.transform.CanonicalizeBindings()(fuse_kernels(mod))
    return mod, operators, nodes


def kernel_sources(plain: tvm.IRModule, fused: tvm.IRModule) -> dict[str, list[str]]:
    """The model's nodes that each kernel computes, from the module before and after fusion.

    FuseOps merges equal groups into one function, which has the spans of the first. So each call of
    a fused function is followed through its body, to the bindings of `plain` with the same kernel
    and operands.
    """
    found: dict[str, dict[str, None]] = {}
    before = {gvar.name_hint: function for gvar, function in relax_functions(plain)}
    functions = {gvar.name_hint: function for gvar, function in relax_functions(fused)}
    for name, function in functions.items():
        if name in before:
            _follow(before[name], function, functions, found)
    return {name: list(nodes) for name, nodes in found.items()}


def _follow(
    plain: relax.Function,
    fused: relax.Function,
    functions: Mapping[str, relax.Function],
    found: dict[str, dict[str, None]],
) -> None:
    known: dict[relax.Var, object] = dict(zip(fused.params, plain.params))
    results: dict[object, tuple[relax.Var, str]] = {}
    for binding in _bindings(plain):
        results.setdefault(_key(binding.value, {}), (binding.var, source_name(binding.value)))

    def note(kernel: str, value: relax.Expr, inner: dict[relax.Var, object]) -> object:
        var, source = results.get(_key(value, inner), (None, ""))
        if source:
            found.setdefault(kernel, {})[source] = None
        return var

    for binding in _bindings(fused):
        value = binding.value
        callee = value.op if isinstance(value, relax.Call) else None
        kernel = str(callee.name_hint) if isinstance(callee, tvm.ir.GlobalVar) else ""
        group = functions.get(kernel)
        if group is None or not is_fused(group):
            known[binding.var] = note(called_kernel(value) or "", value, known)
            continue
        inner = {p: known.get(arg, arg) for p, arg in zip(group.params, value.args)}
        for each in _bindings(group):
            inner[each.var] = note(kernel, each.value, inner)
        known[binding.var] = inner.get(group.body.body)


def _key(value: relax.Expr, known: Mapping[relax.Var, object]) -> object:
    """Key of a value for comparison: its kernel, if it calls one, and its operands."""
    callee = called_kernel(value)
    if callee is None:
        operands: Sequence[relax.Expr] = value.fields if isinstance(value, relax.Tuple) else [value]
        if isinstance(value, relax.TupleGetItem):
            return "field", int(value.index), _id(value.tuple_value, known)
        return ("value", *(_id(each, known) for each in operands))
    operands = value.args[1].fields if isinstance(value.args[1], relax.Tuple) else value.args[1:]
    return callee, *(_id(each, known) for each in operands)


def _id(expr: relax.Expr, known: Mapping[relax.Var, object]) -> int:
    return hash(known.get(expr, expr) if isinstance(expr, relax.Var) else expr)


def _bindings(function: relax.Function) -> Iterator[relax.Binding]:
    for block in function.body.blocks:
        yield from block.bindings


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
