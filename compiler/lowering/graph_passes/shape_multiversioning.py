"""Shape multi-versioning: add functions for requested extents to the dynamic one.

    before   def main(ids: (1, seq)): ...

    after    def main(ids: (1, seq)):
                 if seq == 128: y = main_128(ids)
                 else:          y = main_any(ids)

Each function is lowered separately; all are inlined into `main` once they have their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tvm
from tvm import relax, te, tirx
from tvm.relax.utils import copy_with_new_vars

from schedules.dynamic_rows import with_extents

from ...ir import dynamic_shape as symbols
from ...ir import shape_hints
from ..offloaded_functions import VARIANT, new_global_var


class _Variant(NamedTuple):
    """A function specialized to extents, by symbol."""

    extents: list[tuple[tirx.Var, int]]
    gvar: tvm.ir.GlobalVar
    function: relax.Function


def specialize(mod: tvm.IRModule) -> tvm.IRModule:
    """Add a function for each combination of extents that `main` requests."""
    main = mod["main"]
    combinations = shape_hints.asked(main)
    if not combinations:
        return mod
    known = {str(symbol.name): symbol for symbol in symbols.in_order(main)}
    plain = main.without_attr("global_symbol").without_attr(shape_hints.ASKED)
    plain = copy_with_new_vars(plain.with_attr(VARIANT, True))
    functions = dict(mod.functions_items())
    general = new_global_var("main_any", plain.ty)
    functions[general] = plain
    variants = []
    for extents in combinations:
        own = copy_with_new_vars(plain)  # with its own symbols
        named = {str(symbol.name): symbol for symbol in symbols.in_order(own)}
        own = with_extents(own, [(named[name], extent) for name, extent in extents.items()])
        gvar = new_global_var("_".join(["main", *map(str, extents.values())]), own.ty)
        functions[gvar] = own
        pairs = [(known[name], extent) for name, extent in extents.items()]
        variants.append(_Variant(pairs, gvar, own))
    dispatching = _dispatching(main, general, variants)
    functions[mod.get_global_var("main")] = dispatching["main"]
    functions |= {
        gvar: kernel
        for gvar, kernel in dispatching.functions_items()
        if isinstance(kernel, tirx.PrimFunc)
    }
    made = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    return relax.transform.Normalize()(made)


def _dispatching(
    main: relax.Function, general: tvm.ir.GlobalVar, variants: Sequence[_Variant]
) -> tvm.IRModule:
    """A module with a `main` that calls the function for the extents of its arguments."""
    params = [relax.Var(var.name, var.ty) for var in main.params]
    builder = relax.BlockBuilder()

    def branch(make: Callable[[], relax.Expr]) -> relax.SeqExpr:
        builder._begin_binding_block()
        try:
            result = make()
        finally:
            block = builder._end_block()
        return relax.SeqExpr([block], result)

    def of_variant(variant: _Variant) -> relax.Expr:
        arguments = [
            builder.match_cast(given, own.ty)
            for given, own in zip(params, variant.function.params, strict=True)
        ]
        result = builder.emit(relax.Call(variant.gvar, arguments))
        return builder.match_cast(result, main.ret_ty)

    def choose(rest: Sequence[_Variant]) -> relax.Expr:
        if not rest:
            result = builder.emit(relax.Call(general, params))
            return builder.match_cast(result, main.ret_ty)
        symbols = relax.ShapeExpr([symbol for symbol, _ in rest[0].extents])
        numbers = [number for _, number in rest[0].extents]
        is_taken = builder.emit_te(_are_equal, symbols, numbers, primfunc_name_hint="are_equal")
        own = branch(lambda: of_variant(rest[0]))
        return builder.emit(relax.If(is_taken, own, branch(lambda: choose(rest[1:]))))

    with builder.function("main", params, attrs=dict(main.attrs or {})):
        builder.emit_func_output(choose(variants))
    return builder.get()


def _are_equal(extents: Sequence[tirx.Var], numbers: Sequence[int]) -> te.Tensor:
    """() of bool: whether extents have these values."""
    same = [extent == number for extent, number in zip(extents, numbers, strict=True)]
    return te.compute((), lambda: tirx.all(*same), name="are_equal")
