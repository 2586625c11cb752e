"""`te.round` as it was until TVM 0.19: halves go away from zero; today's go to the even number."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op

from schedules.tir_visit import nodes_of

_ROUND = Op.get("tirx.round")


def halves_away(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with `round` computed of `trunc`; `nearbyint` keeps halves to even."""
    changed = {
        variable: _rounded(function)
        for variable, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc)
        and any(map(_is_round, nodes_of(function.body, Call)))
    }
    if not changed:
        return mod
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in changed.items():
        result.update_func(variable, function)
    return result


def _is_round(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.same_as(_ROUND)


def _rounded(function: tirx.PrimFunc) -> tirx.PrimFunc:
    from ...relay.op.tensor import half_away

    def visit(call: Call) -> Any:
        if not _is_round(call):
            return call
        return half_away(call.args[0], str(call.ty.dtype))

    return function.with_body(tvm_ffi.structural_map(function.body, (Call, visit)))
