"""Has sorts compare integers of 32 or 64 bits, which TVM's kernels take; NaN is behind infinity.

before   order = argsort(x)               values, places = topk(x, k)

after    order = argsort(keys(x))         places = topk(keys(x), k, ret_type="indices")
                                          values = gather_elements(x, places)
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...ordering import comparable

_SORTABLE = ("int32", "int64")


def sort_by_keys(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Rewrite `sort`, `argsort` and `topk` of other dtypes in function `name` of the module."""
    rewriter = _Sorts(mod)
    gvar = mod.get_global_var(name)
    rewriter.builder_.update_func(gvar, rewriter.visit_expr(mod[name]))
    if not rewriter.found:
        return mod
    return relax.transform.DeadCodeElimination([name])(rewriter.builder_.get())


@mutator
class _Sorts(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.found = False

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        call = super().visit_call_(op)
        rule = _RULES.get(getattr(call.op, "name", ""))
        if rule is None or str(call.args[0].ty.dtype) in _SORTABLE:
            return call
        self.found = True
        data, attrs = call.args[0], call.attrs
        sortable = self.builder_.emit(self.builder_.call_te(comparable, data))
        return rule(self.builder_, data, sortable, attrs)


def _argsort(_: Any, __: relax.Expr, sortable: relax.Expr, attrs: Any) -> relax.Expr:
    return relax.op.argsort(sortable, attrs.axis, attrs.descending, str(attrs.dtype))


def _sort(builder: Any, data: relax.Expr, sortable: relax.Expr, attrs: Any) -> relax.Expr:
    order = builder.emit(relax.op.argsort(sortable, attrs.axis, attrs.descending, "int64"))
    return relax.op.gather_elements(data, order, int(attrs.axis) % int(data.ty.ndim))


def _topk(builder: Any, data: relax.Expr, sortable: relax.Expr, attrs: Any) -> relax.Expr:
    kind, dtype = str(attrs.ret_type), str(attrs.dtype)

    def places(dtype: str) -> relax.Expr:
        return relax.op.topk(
            sortable, int(attrs.k), attrs.axis, "indices", bool(attrs.largest), dtype
        )

    if kind == "indices":
        return places(dtype)
    found = builder.emit(places("int64"))
    values = relax.op.gather_elements(data, found, int(attrs.axis) % int(data.ty.ndim))
    if kind == "values":
        return values
    return relax.Tuple([builder.emit(values), builder.emit(relax.op.astype(found, dtype))])


_RULES = {"relax.argsort": _argsort, "relax.sort": _sort, "relax.topk": _topk}
