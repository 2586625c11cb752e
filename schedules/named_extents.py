"""Names for extents that are expressions: min(100, n) rows of a slice become m rows."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import sym, tirx

from .tir_visit import nodes_of

_COMPOUND = (tirx.Min, tirx.Max, tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv)


def _is_compound(extent: Any) -> bool:
    """Whether an extent is neither a number nor a product of symbols."""
    if isinstance(extent, tirx.Mul):
        return any(
            _is_compound(each) or isinstance(each, tirx.IntImm) for each in (extent.a, extent.b)
        )
    return isinstance(extent, _COMPOUND)


def with_named_extents(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """Name extents that are sums and the like; None if there are none or symbols occur alone."""
    names: list[tuple[Any, Any]] = []
    symbols: set[Any] = set()
    simplify = sym.Analyzer().simplify

    def named(expr: Any) -> Any:
        """Its name, however it is spelled: 2 * (n + 1) is n * 2 + 2."""
        used = set(tirx.analysis.undefined_vars(expr))
        if not used or not used <= symbols:
            return expr
        simple = simplify(expr)
        found = (name for other, name in names if tvm_ffi.structural_equal(simple, other))
        return next(found, expr)

    for param in func.params:
        for extent in param.shape if isinstance(param.ty, tirx.BufferType) else ():
            if _is_compound(extent) and named(extent) is extent:
                symbols.update(tirx.analysis.undefined_vars(extent))
                names.append((simplify(extent), tirx.Var("rows", extent.ty)))
    if not names:
        return None
    replaced = {symbol for extent, _ in names for symbol in tirx.analysis.undefined_vars(extent)}
    result = tvm_ffi.structural_map(func, [(kind, named) for kind in _COMPOUND], order="pre")
    left = set(nodes_of(result.body, tirx.Var))
    for param in result.params:
        if isinstance(param.ty, tirx.BufferType):
            for extent in param.shape:
                left.update(tirx.analysis.undefined_vars(extent))
    return None if replaced & left else result
