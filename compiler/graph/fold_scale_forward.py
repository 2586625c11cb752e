"""Folding of a constant scale through relu into the weights of the convolutions behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .constants import array_of, constant, dtype_of, static_shape
from .rewrite import operator_name, variables_of

_CONV2D = "nn.conv2d"


@tvm.transform.module_pass(opt_level=3, name="ForwardFoldScaleAxis")
class ForwardFoldScaleAxis:
    """Move positive per-channel scales in front of relu into the convolutions that read it.

    With a positive, w constant weights of a convolution of one group, every reader of the relu
    such a convolution, and neither product nor sum read by anything else:

    1. conv2d(relu(x * a + b), w) becomes conv2d(relu(x + b / a), w * a).

    TVM did so to the batch norms of pre-activation networks. New weights are computed in float64.
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Fold in every Relax function."""
        changed = mod.clone()
        for gvar, function in mod.functions_items():
            if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
                chains = _chains(function)
                if chains:
                    changed[gvar] = _Folder(chains).visit_expr(function)
        return changed


@dataclass(frozen=True)
class _Chain:
    """x * a + b in front of a relu: variables of the product and the sum, and the constants."""

    product: Any
    source: Any
    total: Any
    scale: np.ndarray
    shift: np.ndarray
    convolutions: tuple[Any, ...]


def _chains(function: relax.Function) -> list[_Chain]:
    bindings = [b for block in function.body.blocks for b in block.bindings]
    values = {b.var: b.value for b in bindings if isinstance(b, relax.VarBinding)}
    readers: dict[Any, list[Any]] = defaultdict(list)
    for var, value in values.items():
        for read in variables_of(value):
            readers[read].append(var)
    readers[function.body.body].append(None)
    found = []
    for relu, value in values.items():
        if operator_name(value) == "nn.relu":
            chain = _chain(relu, values, readers)
            if chain is not None:
                found.append(chain)
    return found


def _chain(relu: Any, values: Mapping[Any, Any], readers: Mapping[Any, list[Any]]) -> _Chain | None:
    total = values[relu].args[0]
    shifted = _with_constant(values.get(total), "add")
    if shifted is None or len(readers[total]) != 1:
        return None
    product, shift = shifted
    scaled = _with_constant(values.get(product), "multiply")
    if scaled is None or len(readers[product]) != 1:
        return None
    source, scale = scaled
    convolutions = tuple(readers[relu])
    calls = [values.get(var) for var in convolutions]
    if not calls or not all(_can_take(call, relu) for call in calls):
        return None
    axes = {str(call.attrs.data_layout).index("C") for call in calls}  # type: ignore[union-attr]
    shape = static_shape(source)
    if len(axes) != 1 or shape is None or static_shape(relu) != shape:
        return None
    channels = shape[axes.pop()]
    if scale.size != channels or shift.size != channels or not (scale > 0).all():
        return None
    if scale.shape != shift.shape and scale.ndim != shift.ndim:
        return None
    return _Chain(product, source, total, scale, shift, convolutions)


def _can_take(call: Any, relu: Any) -> bool:
    """Whether a convolution reads the relu as its data alone, and has constant weights."""
    if operator_name(call) != _CONV2D or int(call.attrs.groups) != 1:
        return False
    weights = array_of(call.args[1])
    return call.args[0].same_as(relu) and weights is not None and weights.dtype.kind == "f"


def _with_constant(call: Any, name: str) -> tuple[Any, np.ndarray] | None:
    if operator_name(call) != name:
        return None
    for value, other in (call.args, reversed(call.args)):
        array = array_of(other)
        if array is not None and array.dtype.kind == "f" and isinstance(value, relax.Var):
            return value, array.astype("float64")
    return None


@mutator
class _Folder(PyExprMutator):
    def __init__(self, chains: list[_Chain]) -> None:
        super().__init__()
        self.products = {chain.product: chain for chain in chains}
        self.totals = {chain.total: chain for chain in chains}
        self.convolutions = {var: chain for chain in chains for var in chain.convolutions}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        if var in self.products:
            return
        if var in self.totals:
            chain = self.totals[var]
            shift = constant((chain.shift / chain.scale).astype(dtype_of(var)))
            value = relax.op.add(chain.source, shift)
        elif var in self.convolutions:
            weights = array_of(value.args[1])
            assert weights is not None
            along = [1] * weights.ndim
            along[str(value.attrs.kernel_layout).index("I")] = -1
            scaled = weights * self.convolutions[var].scale.reshape(along)
            arguments = [value.args[0], constant(scaled.astype(weights.dtype))]
            value = tvm.ir.Call(value.op, arguments, value.attrs, value.ty_args)
        super().visit_var_binding_(relax.VarBinding(var, self.builder_.normalize(value)))
