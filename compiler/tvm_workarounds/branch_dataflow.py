"""Remove dataflow blocks from branches of an If while operators are fused.

    if c:                               if c:
        with dataflow():                    s = tensor_to_shape(k)
            s = tensor_to_shape(k)          m: Shape([n]) = s
            m: Shape([n]) = s               y: (n,) = ...
            y: (n,) = ...

FuseOps of TVM 0.27 groups the bindings of the function's own blocks, but in branches only the
variables that are read. An unread variable in a branch, such as one that names an extent, has no
group, and FuseOps fails. It fuses nothing in branches either way.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax


def plain_branches(mod: tvm.IRModule) -> tvm.IRModule:
    functions = dict(mod.functions_items())
    for gvar, function in mod.functions_items():
        if isinstance(function, relax.Function) and _branches(function.body):
            body = _sequence(function.body, {}, is_branch=False)
            functions[gvar] = relax.Function(
                function.params, body, function.ret_ty, function.is_pure, function.attrs
            )
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _branches(sequence: relax.SeqExpr) -> bool:
    return any(
        isinstance(binding.value, relax.If)
        for block in sequence.blocks
        for binding in block.bindings
    )


def _sequence(sequence: Any, renamed: dict[Any, relax.Var], is_branch: bool) -> relax.SeqExpr:
    """A sequence of bindings, in a branch without variables of dataflow blocks."""

    def value_of(expr: Any) -> Any:
        if isinstance(expr, relax.If):
            branches = (expr.true_branch, expr.false_branch)
            made: Any = relax.If(
                value_of(expr.cond), *(_sequence(each, renamed, True) for each in branches)
            )
            relax.expr._update_type(made, expr.ty)
            return made
        if not renamed:
            return expr
        return tvm_ffi.structural_map(
            expr, ((relax.DataflowVar, relax.Var), lambda var: renamed.get(var, var))
        )

    blocks = []
    for block in sequence.blocks:
        bindings = []
        for binding in block.bindings:
            var, value = binding.var, value_of(binding.value)
            if is_branch and isinstance(var, relax.DataflowVar):
                renamed[var] = relax.Var(var.name, var.ty)
                var = renamed[var]
            if isinstance(binding, relax.MatchCast):
                bindings.append(relax.MatchCast(var, value, binding.ty))
            else:
                bindings.append(relax.VarBinding(var, value))
        plain = is_branch or not isinstance(block, relax.DataflowBlock)
        blocks.append((relax.BindingBlock if plain else relax.DataflowBlock)(bindings))
    result = relax.SeqExpr(blocks, value_of(sequence.body))
    relax.expr._update_type(result, sequence.ty)
    return result
