"""Extents that are computed of symbols, as symbols of their own.

A convolution's result has (frames - 1) // 2 + 1 places. A kernel does not care how their number
came about: where all that it does depends on that number alone, the number is its symbol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import sym, tirx

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)


def with_own_symbols(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with a symbol for each factor of an extent that is not one yet.

    It stays as it is where it asks for what these factors are computed of.
    """
    buffers = [param for param in func.params if isinstance(param.ty, tirx.BufferType)]
    made = tirx.PrimFunc(buffers, func.body, func.ret_type).with_attrs(func.attrs)
    replaced: list[Any] = []
    while computed := _computed(made):
        atom, added = _without_number(computed[0])
        is_one = isinstance(atom, (tirx.Var, tirx.FloorDiv))
        if not is_one or any(tvm_ffi.structural_equal(atom, each) for each in replaced):
            return func
        symbol = tirx.Var(f"extent_{len(replaced)}", "int64")
        made = _substituted(made, atom, symbol - added)
        replaced.append(atom)
    gone = [var for atom in replaced for var in tirx.analysis.undefined_vars(atom)]
    left: list[Any] = []
    tvm_ffi.structural_walk(made, (tirx.Var, left.append))
    if not replaced or any(var.same_as(each) for var in gone for each in left):
        return func
    own = iter(made.params)
    params = [next(own) if isinstance(each.ty, tirx.BufferType) else each for each in func.params]
    return tirx.PrimFunc(params, made.body, made.ret_type).with_attrs(func.attrs)


def _computed(func: tirx.PrimFunc) -> list[Any]:
    """The factors of extents of the parameters that are neither numbers nor symbols."""
    factors = (factor for buffer in func.params for factor in _factors(buffer.shape))
    return [each for each in factors if not isinstance(each, (int, tirx.IntImm, tirx.Var))]


def _factors(extents: Iterable[Any]) -> list[Any]:
    """What extents are products of."""
    found: list[Any] = []
    for extent in extents:
        is_product = isinstance(extent, tirx.Mul)
        found += _factors((extent.a, extent.b)) if is_product else [extent]
    return found


def _without_number(extent: Any) -> tuple[Any, int]:
    """(rest, number) of an extent that is their sum."""
    if isinstance(extent, (tirx.Add, tirx.Sub)) and isinstance(extent.b, tirx.IntImm):
        number = int(extent.b)
        return extent.a, number if isinstance(extent, tirx.Add) else -number
    return extent, 0


def _substituted(func: tirx.PrimFunc, atom: Any, value: Any) -> tirx.PrimFunc:
    """The function with a value for a symbol or a quotient, in its simplest form."""
    analyzer = sym.Analyzer()

    def replaced(part: Any) -> Any:
        return value if tvm_ffi.structural_equal(part, atom) else part

    def simple(part: Any) -> Any:
        return analyzer.simplify(part)

    made = tvm_ffi.structural_map(func, (type(atom), replaced))
    return tvm_ffi.structural_map(made, [(kind, simple) for kind in _ARITHMETIC])
