"""Fuse an interpolation along an axis, as in Resize, into one kernel.

    before   add(multiply(take(x, i, axis), a), multiply(take(x, j, axis), b))
    after    interpolate(x, i, a, j, b)                 i, j, a, b: constant vectors

FuseOps treats `take` as opaque: each became a kernel writing a tensor of the result's size. The
producer of x stays separate, since its elements are read several times.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ir.constants import array_of, constant, dtype_of, static_shape
from ...ir.rewrite import operator_name, redefine, relax_functions, rewritten
from ...primfuncs.fusion_pattern import ATTRIBUTE, OUT_ELEMENTWISE_FUSABLE
from ...primfuncs.kernel_operators import NamingBuilder

FLOATS = ("float32", "float64")


class _Term(NamedTuple):
    """take(x, indices, axis) * weights, both vectors along the axis."""

    x: relax.Var
    axis: int
    indices: np.ndarray
    weights: np.ndarray


def interpolations(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace each interpolation in the module's functions by one kernel."""
    for gvar, function in relax_functions(mod):
        found = _Finder(function).found
        if found and gvar in mod.functions:  # else unused
            mod = rewritten(mod, gvar.name_hint, _Replacer(mod, found))
    return mod


class _Finder:
    """The terms of each interpolation, by the variable that it is bound to."""

    def __init__(self, function: relax.Function) -> None:
        self._values: dict[relax.Var, relax.Expr] = {}
        self._readers: Counter[relax.Var] = Counter()
        for block in getattr(function.body, "blocks", ()):
            for binding in block.bindings:
                if isinstance(binding, relax.VarBinding):
                    self._values[binding.var] = binding.value
                    self._readers.update(relax.analysis.free_vars(binding.value))
        self._readers.update(relax.analysis.free_vars(function.body))
        self.found = {}
        for var, value in self._values.items():
            terms = self._terms(value)
            if len(terms) > 1 and len({(term.x, term.axis) for term in terms}) == 1:
                self.found[var] = terms

    def _terms(self, value: relax.Expr) -> list[_Term]:
        """The terms of a sum in order; none if an operand is no term."""
        backwards: list[_Term] = []
        while operator_name(value) == "add":
            first, last = value.args
            term = self._term(last)
            if term is None:
                return []
            backwards.append(term)
            sum_before = self._own(first, "add")
            if sum_before is not None:
                value = sum_before
                continue
            term = self._term(first)
            return [] if term is None else [term, *reversed(backwards)]
        return []

    def _own(self, operand: relax.Expr, name: str) -> relax.Call | None:
        """The call of this operator that computes an operand, if it has no other reader."""
        value = self._values.get(operand) if isinstance(operand, relax.Var) else None
        return value if operator_name(value) == name and self._readers[operand] == 1 else None

    def _term(self, operand: relax.Expr) -> _Term | None:
        product = self._own(operand, "multiply")
        if product is None:
            return None
        for taken, factor in (product.args, list(product.args)[::-1]):
            take, weights = self._own(taken, "take"), array_of(factor)
            if take is not None and weights is not None:
                return _term(take, weights)
        return None


def _term(take: relax.Call, weights: np.ndarray) -> _Term | None:
    """A term with known, valid indices and weights that vary along the axis only."""
    x, shape, indices = take.args[0], static_shape(take.args[0]), array_of(take.args[1])
    if shape is None or indices is None or indices.ndim != 1 or take.attrs.axis is None:
        return None
    axis, rank = int(take.attrs.axis) % len(shape), len(shape)
    whole = weights.reshape((1,) * (rank - weights.ndim) + weights.shape)
    others = whole.shape[:axis] + whole.shape[axis + 1 :]
    if not isinstance(x, relax.Var) or dtype_of(x) not in FLOATS or set(others) - {1}:
        return None
    if indices.size == 0 or indices.min() < 0 or indices.max() >= shape[axis]:
        return None
    along = np.broadcast_to(whole.reshape(-1), indices.shape)
    return _Term(x, axis, indices.astype("int32"), np.ascontiguousarray(along))


@mutator
class _Replacer(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, found: dict[relax.Var, list[_Term]]) -> None:
        super().__init__(mod)
        self._found = found

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        terms = self._found.get(binding.var)
        if terms is None:
            super().visit_var_binding_(binding)
            return
        vectors = [constant(each) for term in terms for each in (term.indices, term.weights)]
        call = NamingBuilder(self.builder_).call_te(
            _interpolated,
            self.visit_expr(terms[0].x),
            vectors,
            terms[0].axis,
            primfunc_name_hint="interpolate",
            primfunc_attrs={ATTRIBUTE: OUT_ELEMENTWISE_FUSABLE},
        )
        redefine(self, binding.var, call)


def _interpolated(x: te.Tensor, vectors: list[te.Tensor], axis: int) -> te.Tensor:
    """x at all indices along the axis times their weights; `vectors` alternates between both."""

    def element(*at: Any) -> Any:
        here = at[axis]
        terms = [
            x(*at[:axis], indices[here], *at[axis + 1 :]) * weights[here]
            for indices, weights in zip(vectors[::2], vectors[1::2])
        ]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    shape = [*x.shape]
    shape[axis] = vectors[0].shape[0]
    return te.compute(shape, element, name="interpolated")
