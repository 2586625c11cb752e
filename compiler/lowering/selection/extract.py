"""The unscheduled kernels of a module: what task extraction offers and records are matched to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...ir.outline_by_name import contract
from ...ir.rewrite import relax_functions
from ...primfuncs.fusion_pattern import called_kernel
from ...primfuncs.kernel_operators import operators_of
from ...tvm_workarounds.block_builder import BlockBuilder
from ..bind import bind_params
from ..graph_passes.batch_provenance import ONE_SAMPLE, provenance
from ..graph_passes.fuse import is_fused
from ..graph_passes.insert_bounds_checks import limited_takes
from ..graph_passes.legalize import legalize_ops
from ..graph_passes.shape_multiversioning import specialize
from ..graph_passes.unique_names import unique_names
from ..offloaded_functions import function_targets
from ..simplify import simplify

_BINDING = "baton.binding"
_ALONE = "baton.alone"


@dataclass(frozen=True)
class UnscheduledKernel:
    """One call of one fused kernel whose compute carries no schedule choice."""

    func: PrimFunc  # the unscheduled TIR function
    bindings: tuple[str, ...]  # variables of the Relax function whose operators were fused into it
    operators: tuple[str, ...]  # Relay's names of these operators, in order
    # Parameters of the function that are constants of the module
    constants: frozenset[int] = frozenset()
    # The module and the name of the function that `bindings` belong to, and these
    origin: tuple[tvm.IRModule, str, tuple[str, ...]] | None = None


def plain_kernels(mod: tvm.IRModule, name: str, target: Target) -> list[UnscheduledKernel]:
    """Legalize and fuse function `name` with TOPI's plain computes; the module is not changed.

    Kernels' origins are of the module in which every variable of the function has its own name.
    """
    mod = unique_names(mod, name)
    fused, single = _legalize_and_fuse(mod, name, target)
    members = {
        gvar.name_hint: [callee for callee, _ in kernel_calls(function)]
        for gvar, function in relax_functions(fused)
        if is_fused(function)
    }
    kernels = []
    for kernel, args in kernel_calls(single[name]):
        parts = [(part, fused[part]) for part in members.get(kernel, [kernel])]
        bindings = tuple(
            str(part.attrs[_BINDING]) for _, part in parts if _BINDING in (part.attrs or {})
        )
        operators = tuple(each for part in parts for each in operators_of(*part))
        constants = frozenset(
            index for index, arg in enumerate(args) if isinstance(arg, tvm.ir.GenericConst)
        )
        origin = (mod, name, bindings)
        kernels.append(UnscheduledKernel(single[kernel], bindings, operators, constants, origin))
    return kernels


def plain_function(mod: tvm.IRModule, name: str, target: Target) -> tvm.IRModule:
    """The module with function `name` legalized and fused with TOPI's plain computes."""
    return _legalize_and_fuse(mod, name, target)[1]


def _legalize_and_fuse(
    mod: tvm.IRModule, name: str, target: Target
) -> tuple[tvm.IRModule, tvm.IRModule]:
    """The module before and after the kernels of each group become one."""
    with target:
        legal = legalize_ops()(limited_takes(mod, name))
        tagged = _tag_bindings(legal, name)
        fused = tvm.transform.Sequential(
            [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(fuse_opt_level=2)]
        )(tagged)
        return fused, relax.transform.FuseTIR()(fused)


def kernels(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, target: Target
) -> list[tuple[Target, UnscheduledKernel]]:
    """Every kernel call of a simplified module, with the target of the function that calls."""
    bound, _ = bind_params(mod, params or {})
    simplified = specialize(simplify(bound))
    return [
        (own_target, kernel)
        for name, own_target in function_targets(simplified, target).items()
        for kernel in plain_kernels(simplified, name, own_target)
    ]


def alone(mod: tvm.IRModule, name: str, bindings: Sequence[str]) -> tvm.IRModule:
    """A module whose main has only the operators bound to `bindings`, at operator level."""
    outlined = contract(mod, [list(bindings)], [{_ALONE: "1"}], function=name)
    for _, function in outlined.functions_items():
        if function.attrs and _ALONE in function.attrs:
            for key in list(function.attrs.keys()):
                function = function.without_attr(key)
            function = function.with_attr("global_symbol", "main")
            if provenance(mod).is_one_sample:  # not visible from the operators' inputs alone
                function = function.with_attr(ONE_SAMPLE, True)
            return tvm.IRModule({"main": function})
    raise AssertionError("contract made no function")


def kernel_calls(function: relax.Function) -> list[tuple[str, list[Any]]]:
    """Name and arguments of each kernel call, in order."""
    found = []
    for block in function.body.blocks:
        for binding in block.bindings:
            callee = called_kernel(binding.value)
            if callee is not None:
                args = binding.value.args[1]
                fields = list(args.fields) if isinstance(args, relax.Tuple) else [args]
                found.append((callee, fields))
    return found


def _tag_bindings(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Tag each kernel call of function `name` with its variable, in a separate PrimFunc.

    Fusion renames variables and keeps kernels, so the tag leads back to the original bindings.
    """
    builder = BlockBuilder(mod)
    tagger = _Tagger(builder, mod)
    gvar = mod.get_global_var(name)
    builder.update_func(gvar, tagger.visit_expr(mod[name]))
    return builder.get()


@relax.expr_functor.mutator
class _Tagger(relax.expr_functor.PyExprMutator):
    def __init__(self, functions: BlockBuilder, mod: tvm.IRModule) -> None:
        super().__init__()
        self.functions = functions
        self.mod = mod

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        callee = called_kernel(binding.value)
        if callee is not None:
            call = binding.value
            func = self.mod[callee].with_attr(_BINDING, binding.var.name)
            gvar = self.functions.add_func(func, callee)
            value = relax.Call(call.op, [gvar, *call.args[1:]], call.attrs, call.ty_args)
            binding = relax.VarBinding(binding.var, self.builder_.normalize(value))
        super().visit_var_binding_(binding)
