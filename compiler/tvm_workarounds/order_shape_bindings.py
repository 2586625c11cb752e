"""Move bindings after those that define the symbolic extents they use.

    lv = relu(x)                                   gv = fused_relu_tile(x, n)
    match_cast(tensor_to_shape(s), (n,))     ->    match_cast(tensor_to_shape(s), (n,))
    gv = tile(lv, n)

FuseOps of TVM 0.27 ignores symbols when it orders fused calls, so that VM code generation fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from schedules.tir_visit import nodes_of


def in_order(mod: tvm.IRModule) -> tvm.IRModule:
    """Move each binding of the module's functions after the `match_cast` of each of its symbols."""
    changed = {}
    for gvar, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        blocks = _blocks(function)
        if blocks is not None:
            body = relax.SeqExpr(blocks, function.body.body)
            changed[gvar] = relax.Function(
                function.params, body, function.ret_ty, function.is_pure, function.attrs
            )
    if not changed:
        return mod
    functions = {**dict(mod.functions_items()), **changed}
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _blocks(function: relax.Function) -> list[relax.BindingBlock] | None:
    """The blocks in order; None if they already are."""
    known: set[Any] = set().union(*(_variables(param.ty) for param in function.params))
    changed = False
    result: list[relax.BindingBlock] = []
    for block in function.body.blocks:
        result.append(block)
        bindings = list(block.bindings)
        casts = [each for each in bindings if isinstance(each, relax.MatchCast)]
        if not casts:
            continue
        missing = set().union(*(_variables(cast.ty) for cast in casts)) - known
        ordered = list(_ordered(bindings, missing))
        known |= missing
        if any(new is not old for new, old in zip(ordered, bindings, strict=True)):
            changed = True
            result[-1] = type(block)(ordered)
    return result if changed else None


def _ordered(bindings: Sequence[relax.Binding], symbols: set[Any]) -> Iterator[relax.Binding]:
    """Emit bindings once their dependences, variables and `symbols` defined here, are available."""
    waiting: list[relax.Binding] = []
    missing = set(symbols)
    for binding in bindings:
        waiting.append(binding)
        while waiting:
            ready = next((each for each in waiting if _is_ready(each, missing, waiting)), None)
            if ready is None:
                break
            waiting.remove(ready)
            if isinstance(ready, relax.MatchCast):
                missing -= _variables(ready.ty)
            yield ready
    yield from waiting


def _is_ready(binding: relax.Binding, missing: set[Any], waiting: list[relax.Binding]) -> bool:
    uses = _variables(binding.value)
    return uses.isdisjoint(missing) and uses.isdisjoint(each.var for each in waiting)


def _variables(node: Any) -> set[Any]:
    return set(nodes_of(node, tirx.Var))
