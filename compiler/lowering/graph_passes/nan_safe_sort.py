"""Sort by integer keys of 32 or 64 bits, which TVM's kernels support; NaN sorts after infinity.

before   order = argsort(x)               values, places = topk(x, k)

after    order = argsort(keys(x))         places = topk(keys(x), k, ret_type="indices")
                                          values = gather_elements(x, places)
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...ir.rewrite import CallRule, rewrite_calls
from ...kernels.arg_reduce import comparable

_SORTABLE = ("int32", "int64")


def sort_by_keys(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Rewrite sorts of other dtypes in function `name`."""
    return rewrite_calls(mod, _Sorts, [name])


class _Sorts(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        rule = _RULES.get(name)
        if rule is None or str(call.args[0].ty.dtype) in _SORTABLE:
            return None
        builder = self.scope.builder
        sortable = builder.emit(builder.call_te(comparable, call.args[0]))
        return rule(builder, call.args[0], sortable, call.attrs)


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


_RULES = {"argsort": _argsort, "sort": _sort, "topk": _topk}
