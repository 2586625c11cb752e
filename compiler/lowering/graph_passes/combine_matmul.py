"""Compute the queries, keys and values of an attention with one matmul.

    before   q = reshape(x wq + bq); k = reshape(x wk + bk); v = reshape(x wv + bv)

    after    qkv = reshape(x [wq wk wv] + [bq bk bv])                     (B, S, 3, H, D)
             q = take(qkv, 0, axis=2); k = take(qkv, 1, axis=2); v = take(qkv, 2, axis=2)

The attention kernel reads the slices in place, so that nothing is copied; only matmuls without
other readers are combined. TVM's CombineParallelMatmul requires weights that are variables, and
splits the result with copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from schedules import strategy
from schedules.attention import Heads
from schedules.matmul import DenseWorkload

from ...ir.constants import array_of, constant, dtype_of, static_shape
from ..selection.ops.attention import DTYPES, Bindings, choose_kernel, find_attention


def combine_matmul(
    mod: tvm.IRModule,
    name: str,
    target: Target,
    query: strategy.Query | None = None,
    own_queries: Mapping[str, strategy.Query] | None = None,
    disabled: Collection[str] = (),
) -> tvm.IRModule:
    """Combine matmuls in function `name` of a module.

    `query` looks up AutoTVM records; `own_queries` replace it by the variable of an operator's
    result. A record for one of the products is an explicit choice: they stay apart. `disabled`:
    implementations that will not be chosen.
    """
    function = mod[name]
    bindings = Bindings(function)
    entries: dict[relax.Var, tuple[_Combined, int]] = {}
    for attention in find_attention(function).values():
        if choose_kernel(attention, target, query, own_queries, disabled) is None:
            continue
        operands = zip(
            (attention.q, attention.k, attention.v),
            (attention.workload.q, attention.workload.k, attention.workload.v),
        )
        products = [_product(bindings, tensor, heads) for tensor, heads in operands]
        free = [p for p in products if p and not p.is_recorded(target, query, own_queries or {})]
        for alike in _with_same_operand(free):
            combined = _Combined(alike)
            entries |= {product.split: (combined, i) for i, product in enumerate(alike)}
    if not entries:
        return mod
    rewritten = _Combiner(mod, entries).visit_expr(function)
    updated = mod.clone()
    updated.update_func(mod.get_global_var(name), rewritten)
    return relax.transform.DeadCodeElimination([name])(updated)


@dataclass(frozen=True)
class _Product:
    """x (B, S, K) times a constant (K, H * D), plus an optional constant, as (B, S, H, D)."""

    var: relax.Var  # variable of the matmul's result
    split: relax.Var  # variable of the reshape that splits off the heads
    x: relax.Expr
    source: relax.Expr  # x, or what x was before a cast
    weight: np.ndarray
    bias: np.ndarray | None
    shape: tuple[int, ...]

    def is_recorded(
        self, target: Target, query: strategy.Query | None, own: Mapping[str, strategy.Query]
    ) -> bool:
        """Whether a tuning record exists for the separate matmul."""
        lead = static_shape(self.x)
        if lead is None:
            return False
        k, n = self.weight.shape
        workload = DenseWorkload(lead[:-1], n, k)
        chosen = strategy.select("nn.dense", workload, target, own.get(self.var.name, query))
        return chosen is not None and not chosen[1].is_fallback


def _product(bindings: Bindings, tensor: relax.Expr, heads: Heads) -> _Product | None:
    """The matmul that produces an operand of an attention, if it has no other reader."""
    if heads.joined != 2 or heads.entry is not None or not isinstance(tensor, relax.Var):
        return None
    split = bindings.reader(tensor, "reshape")
    if split is None:
        return None
    var, bias = tensor, None
    total = bindings.call(tensor, "add")
    if total is not None:
        for inner, other in (tuple(total.args), tuple(total.args)[::-1]):
            bias = array_of(other)
            if bias is not None:
                var = inner
                break
    product = bindings.call(var, "matmul")
    if product is None or not tvm_ffi.structural_equal(var.ty.shape, tensor.ty.shape):
        return None
    x, weight = product.args[0], array_of(product.args[1])
    if weight is None or weight.ndim != 2 or x.ty.ndim != 3:
        return None
    if {str(weight.dtype), dtype_of(x), dtype_of(product)} not in ({dtype} for dtype in DTYPES):
        return None
    if bias is not None and bias.shape[-1:] != weight.shape[1:]:
        return None
    cast = bindings.call(x, "astype", only_reader=False)
    source = x if cast is None else cast.args[0]
    return _Product(var, split[0], x, source, weight, bias, heads.operand.stored)


def _with_same_operand(products: Iterable[_Product]) -> list[list[_Product]]:
    """Groups of two or three matmuls of the same matrix with the same heads."""
    groups: dict[tuple[Any, tuple[int, ...]], dict[relax.Var, _Product]] = {}
    for product in products:
        key = product.source, product.shape
        groups.setdefault(key, {})[product.split] = product
    return [list(group.values()) for group in groups.values() if len(group) > 1]


@dataclass(eq=False)
class _Combined:
    products: list[_Product]
    result: relax.Var | None = None  # emitted (B, S, number of products, H, D)


@mutator
class _Combiner(PyExprMutator):
    def __init__(
        self, mod: tvm.IRModule, entries: Mapping[relax.Var, tuple[_Combined, int]]
    ) -> None:
        super().__init__(mod)
        self.entries = entries

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var not in self.entries:
            super().visit_var_binding_(binding)
            return
        combined, index = self.entries[binding.var]
        if combined.result is None:
            combined.result = self._multiply(combined.products)
        entry = relax.op.take(combined.result, relax.const(index, "int64"), axis=2)
        self.set_var_remap(binding.var, self.builder_.emit(entry))

    def _multiply(self, products: list[_Product]) -> relax.Var:
        """The matmul with concatenated weights."""
        emit = self.builder_.emit
        x = self.visit_expr(products[0].x)
        weight = np.concatenate([product.weight for product in products], axis=1)
        result = emit(relax.op.matmul(x, constant(weight)))
        if any(product.bias is not None for product in products):
            bias = np.concatenate([_bias(product) for product in products])
            result = emit(relax.op.add(result, constant(bias)))
        batch, rows, heads, columns = products[0].shape
        return emit(relax.op.reshape(result, (batch, rows, len(products), heads, columns)))


def _bias(product: _Product) -> np.ndarray:
    """The bias of a matmul; zeros if it has none."""
    if product.bias is None:
        return np.zeros(product.weight.shape[1], product.weight.dtype)
    return product.bias.reshape(-1)
