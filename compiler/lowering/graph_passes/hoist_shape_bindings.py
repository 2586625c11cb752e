"""Move calls after the bindings that define the symbolic extents they use.

Fusion places a fused call at its first operator and tracks dependences through values only: an
extent computed in between would be read before it is known.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from ...ir.rewrite import expressions_in, relax_functions, with_functions
from ...ir.scopes import with_blocks


def symbols_first(mod: tvm.IRModule) -> tvm.IRModule:
    """Move every binding after the bindings that define its values and symbols."""
    functions = {}
    for gvar, function in relax_functions(mod):
        if _casts(function):
            blocks = [type(block)(_in_order(block)) for block in function.body.blocks]
            functions[gvar] = with_blocks(function, blocks)
    return with_functions(mod, functions)


def _casts(function: relax.Function) -> bool:
    return any(
        isinstance(binding, relax.MatchCast)
        for block in function.body.blocks
        for binding in block.bindings
    )


def _in_order(block: relax.BindingBlock) -> list[Any]:
    """Order the bindings of a block; one that comes too early moves after its last dependence."""
    missing = {
        symbol
        for binding in block.bindings
        if isinstance(binding, relax.MatchCast)
        for symbol in _symbols(binding.ty)
    }
    done: list[Any] = []
    waiting: list[tuple[Any, set[Any]]] = []

    def place(binding: Any) -> None:
        needed = _needed(binding) & missing
        if needed:
            missing.add(binding.var)
            waiting.append((binding, needed))
            return
        done.append(binding)
        made = {binding.var}
        if isinstance(binding, relax.MatchCast):
            made.update(_symbols(binding.ty))
        missing.difference_update(made)
        again = [each for each in waiting if each[1] & made]
        for each in again:
            waiting.remove(each)
        for each, _ in again:
            place(each)

    for binding in block.bindings:
        place(binding)
    return [*done, *(binding for binding, _ in waiting)]


def _needed(binding: Any) -> set[Any]:
    """Variables and symbols that a binding reads."""
    found: set[Any] = set()
    for expr in expressions_in(binding.value):
        if isinstance(expr, relax.Var):
            found.add(expr)
        elif isinstance(expr, relax.ShapeExpr):
            for extent in expr.values:
                found.update(tirx.analysis.undefined_vars(extent))
    if isinstance(binding, relax.VarBinding):
        found |= _symbols(binding.var.ty)
        for ty in getattr(binding.value, "ty_args", ()):
            found |= _symbols(ty)
    return found


def _symbols(ty: Any) -> set[Any]:
    if isinstance(ty, relax.TupleType):
        return {symbol for field in ty.fields for symbol in _symbols(field)}
    shape = ty if isinstance(ty, relax.ShapeType) else getattr(ty, "shape", None)
    values = getattr(shape, "values", None) or ()
    return {symbol for extent in values for symbol in tirx.analysis.undefined_vars(extent)}
