"""Have a layer-norm kernel also write a half-precision result if both dtypes are read.

    before   y = layer_norm(x, gamma, beta)              float32, for the residual sum
             z = astype(y, "float16")                    a separate kernel, for a matmul

    after    both = one kernel(x, gamma, beta)
             y = both[0]; z = both[1]

Transformers converted by `relay.transform.ToMixedPrecision` have two of these in each layer.
Fusion does not merge a cast with a norm whose result has other readers.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.constants import dtype_of, static_shape
from ...ir.rewrite import rewritten
from ...primfuncs import fusion_pattern
from ...primfuncs.kernel_operators import NamingBuilder
from .fp32_accumulation import HALVES

_NORM = tvm.ir.Op.get("relax.nn.layer_norm")
_CAST = tvm.ir.Op.get("relax.astype")


def round_norms(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Rewrite function `name` of a module; a function without such a norm is returned unchanged."""
    rounded = _rounded(mod[name])
    return rewritten(mod, name, _Rewriter(mod, rounded)) if rounded else mod


def _rounded(function: relax.Function) -> dict[relax.Var, str]:
    """Norms of static shape that are read in both dtypes, with the half-precision dtype."""
    bindings = [each for block in function.body.blocks for each in block.bindings]
    norms = {
        each.var
        for each in bindings
        if isinstance(each, relax.VarBinding) and _is_float32_norm(each.value)
    }
    types: dict[relax.Var, set[str]] = {norm: set() for norm in norms}
    plain = set(relax.analysis.free_vars(function.body.body))
    for each in bindings:
        if _is_cast_to_half(each.value) and each.value.args[0] in norms:
            types[each.value.args[0]].add(dtype_of(each.value))
        else:
            plain.update(relax.analysis.free_vars(each.value))
    return {norm: min(types[norm]) for norm in norms if norm in plain and len(types[norm]) == 1}


def _is_float32_norm(value: relax.Expr) -> bool:
    return (
        isinstance(value, relax.Call)
        and value.op.same_as(_NORM)
        and dtype_of(value) == "float32"
        and static_shape(value) is not None
        and bool(value.attrs.center)
        and bool(value.attrs.scale)
    )


def _is_cast_to_half(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and value.op.same_as(_CAST) and dtype_of(value) in HALVES


@mutator
class _Rewriter(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, rounded: Mapping[relax.Var, str]) -> None:
        super().__init__(mod)
        self._rounded = rounded
        self._halves: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if binding.var in self._rounded and isinstance(binding.var, relax.DataflowVar):
            both = self.builder_.emit(self._both(value, self._rounded[binding.var]))
            self.set_var_remap(binding.var, self.builder_.emit(relax.TupleGetItem(both, 0)))
            self._halves[binding.var] = self.builder_.emit(relax.TupleGetItem(both, 1))
        elif (
            _is_cast_to_half(value)
            and value.args[0] in self._halves
            and isinstance(binding.var, relax.DataflowVar)
        ):
            self.set_var_remap(binding.var, self._halves[value.args[0]])
        else:
            super().visit_var_binding_(binding)

    def _both(self, call: relax.Call, dtype: str) -> relax.Expr:
        axes, epsilon = [int(axis) for axis in call.attrs.axes], float(call.attrs.epsilon)

        def compute(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> list[te.Tensor]:
            rank = len(x.shape)
            y = topi.nn.layer_norm(x, gamma, beta, [axis % rank for axis in axes], epsilon)
            return [y, topi.cast(y, dtype)]

        return NamingBuilder(self.builder_).call_te(
            compute,
            *(self.visit_expr(argument) for argument in call.args),
            primfunc_name_hint="layer_norm",
            primfunc_attrs={fusion_pattern.ATTRIBUTE: fusion_pattern.OPAQUE},
        )
