"""Rewrite functions with symbolic sizes so that TVM can inline them.

    f(x: (n,)):  return negative(x)                    main: a: (m,) = ..;  b = f(a)

TVM 0.27 gives inlined code new sizes, `b: (k,) = negative(a)`, and leaves k undefined, so that VM
code generation for `main` fails.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.expr import _update_type


def with_own_sizes(function: relax.Function) -> relax.Function:
    """Define the sizes by matches in the function's body, not by its parameter types."""
    if not relax.analysis.defined_symbolic_vars(function):
        return function
    given = [relax.Var(param.name, _without_sizes(param.ty)) for param in function.params]
    matched = [relax.MatchCast(param, var, param.ty) for param, var in zip(function.params, given)]
    # a shape gives the symbols that other parameters have in expressions alone
    matched.sort(key=lambda binding: not isinstance(binding.var.ty, relax.ShapeType))
    body = relax.SeqExpr([relax.DataflowBlock(matched), *function.body.blocks], function.body.body)
    _update_type(body, function.body.ty)
    result = _without_sizes(function.ret_ty)
    return relax.Function(given, body, result, function.is_pure, function.attrs)


def _without_sizes(ty: Any) -> Any:
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_without_sizes(field) for field in ty.fields])
    if isinstance(ty, relax.ShapeType):
        return relax.ShapeType(ndim=ty.ndim)
    if isinstance(ty, relax.TensorType):
        return relax.TensorType(dtype=ty.dtype, ndim=ty.ndim)
    return ty
