"""Dynamic extents of `main`'s parameters: their names and bounds."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx

from ..errors import BuildError
from .rewrite import relax_functions, with_functions
from .unique_names import Names

BOUNDS = "tir_var_upper_bound"
"""Attribute of a function with the largest extents of its symbols, which TVM plans memory by."""

_LARGEST = 1 << 40
"""Beyond every extent."""


def rename_extents(mod: tvm.IRModule) -> tvm.IRModule:
    """Append "_" to the names of the dynamic extents of all functions.

    Kernels have them as parameters, and CUDA C rejects C++ keywords, such as "new".
    """
    changed = {}
    for gvar, function in relax_functions(mod):
        extents = relax.analysis.defined_symbolic_vars(function)
        bounds = (function.attrs or {}).get(BOUNDS, {})
        made = function.bind_symbolic_vars(
            {each: tirx.Var(f"{each.name}_", each.ty) for each in extents}
        )
        if bounds:
            made = made.with_attr(BOUNDS, {f"{name}_": most for name, most in bounds.items()})
        changed[gvar] = made
    return with_functions(mod, changed)


def in_order(function: relax.Function) -> list[tirx.Var]:
    """The symbols of a function's parameters, in order."""
    found: dict[Any, None] = {}
    for var in function.params:
        shape = var.ty.shape if isinstance(var.ty, relax.TensorType) else None
        for extent in shape.values if isinstance(shape, relax.ShapeExpr) else ():
            if isinstance(extent, tirx.Var):
                found[extent] = None
    return list(found)


def extents_of_types(function: relax.Function) -> list[Any]:
    """The extents with symbols in the types of a function's variables."""
    found: list[Any] = []

    def note(expr: Any) -> None:
        ty = expr.ty if isinstance(expr, relax.Var) else None
        shape = ty.shape if isinstance(ty, relax.TensorType) else None
        for extent in shape.values if isinstance(shape, relax.ShapeExpr) else ():
            is_known = any(extent.same_as(other) for other in found)
            if not isinstance(extent, tirx.IntImm) and not is_known:
                found.append(extent)

    for var in function.params:
        note(var)
    for block in function.body.blocks:
        for binding in block.bindings:
            note(binding.var)
    return found


def of_types(function: relax.Function) -> list[tirx.Var]:
    """The symbols in the types of a function's variables."""
    found: dict[Any, None] = {}
    for extent in extents_of_types(function):
        for var in tirx.analysis.undefined_vars(extent):
            found[var] = None
    return list(found)


def with_known_casts(function: relax.Function) -> relax.Function:
    """Replace the symbols of each `match_cast` of a tensor by the tensor's extents where known.

    TVM replaces them in the types that it infers again, but not in operands.
    """
    known: dict[tirx.Var, Any] = {}

    def replaced(part: Any) -> Any:
        return tvm_ffi.structural_map(part, (tirx.Var, lambda var: known.get(var, var)))

    for binding in [each for block in function.body.blocks for each in block.bindings]:
        if isinstance(binding, relax.MatchCast):
            shapes = [getattr(ty, "shape", None) for ty in (binding.value.ty, binding.ty)]
            known_shapes = [each for each in shapes if isinstance(each, relax.ShapeExpr)]
            if len(known_shapes) == 2:
                for own, extent in zip(*(shape.values for shape in known_shapes)):
                    if isinstance(extent, tirx.Var) and not own.same_as(extent):
                        known[extent] = replaced(own)
    for symbol in in_order(function):
        known.pop(symbol, None)
    return replaced(function) if known else function


def symbols_of(ty: Any) -> list[tirx.Var]:
    """The symbols in the extents of a type, repetitions included."""
    if isinstance(ty, relax.TupleType):
        return [symbol for field in ty.fields for symbol in symbols_of(field)]
    shape = ty.shape if isinstance(ty, relax.TensorType) else ty
    if not isinstance(shape, (relax.ShapeExpr, relax.ShapeType)) or shape.values is None:
        return []
    extents = [extent for extent in shape.values if not isinstance(extent, tirx.IntImm)]
    return [symbol for extent in extents for symbol in tirx.analysis.undefined_vars(extent)]


def names(function: relax.Function) -> dict[tirx.Var, str]:
    """A name for each symbol; duplicate names get numbers."""
    taken = Names()
    return {symbol: taken.unique(str(symbol.name)) for symbol in in_order(function)}


def text(extent: Any, known: Mapping[tirx.Var, str]) -> str:
    """An extent over symbols as text; "" if it has unknown symbols."""
    used = tirx.analysis.undefined_vars(extent)
    if any(var not in known for var in used):
        return ""
    renamed = {var: tirx.Var(known[var], var.ty) for var in used}
    whole = tvm_ffi.structural_map(extent, (tirx.Var, lambda var: renamed.get(var, var)))
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(whole)).replace("T.", "")


def number_or_text(extent: Any, known: Mapping[tirx.Var, str]) -> int | str:
    """An extent as an int or as text, in which unknown symbols keep their own names."""
    if isinstance(extent, tirx.IntImm):
        return int(extent)
    own = {var: known.get(var, str(var.name)) for var in tirx.analysis.undefined_vars(extent)}
    return text(extent, own)


def as_extent(value: Any) -> Any:
    """Convert an int or an expression to a shape extent."""
    return value if isinstance(value, tvm.ir.Expr) else tirx.const(int(value), "int64")


_SAMPLE = 720720
"""Value of symbols that many numbers divide."""


def simplified(extent: Any, most: Mapping[str, int] = MappingProxyType({})) -> Any:
    """Simplify an extent to an int or an expression. Symbols are nonnegative; `most` holds
    their upper bounds by name."""
    if not isinstance(extent, tvm.ir.Expr):
        return int(extent)
    analyzer = sym.Analyzer()
    for var in tirx.analysis.undefined_vars(extent):
        end = int(most.get(str(var.name), _LARGEST - 1)) + 1
        analyzer.bind(var, tvm.ir.Range(tirx.const(0, "int64"), tirx.const(end, "int64")))
    simple = analyzer.simplify(extent)
    parts = tvm_ffi.structural_map(simple, _RULES)
    simple = simple if parts.same_as(simple) else analyzer.simplify(parts)
    divisors = _divisors(simple)
    if divisors:
        split = tvm_ffi.structural_map(simple, (tirx.FloorDiv, _split_quotient))
        chosen = tvm_ffi.structural_map(split, ((tirx.Min, tirx.Max), _chooser(divisors)))
        simple = simple if chosen.same_as(simple) else analyzer.simplify(chosen)
    return int(simple) if isinstance(simple, tirx.IntImm) else simple


def is_natural(extent: Any) -> bool:
    """Whether an extent is known to be at least 0."""
    if isinstance(extent, int):
        return extent >= 0
    known = simplified(extent >= 0)
    return isinstance(known, int) and bool(known)


def _divisors(extent: tvm.ir.Expr) -> dict[tirx.Var, int]:
    """Common multiples of the divisors of each symbol; empty for extents without min and max."""
    found: dict[tirx.Var, int] = {}
    extremes: list[tvm.ir.Expr] = []

    def note(part: Any) -> None:
        used = {*tirx.analysis.undefined_vars(part.a)}
        if len(used) == 1 and isinstance(part.b, tirx.IntImm) and int(part.b) > 0:
            var = used.pop()
            found[var] = math.lcm(found.get(var, 1), int(part.b))

    tvm_ffi.structural_walk(extent, ((tirx.Min, tirx.Max), extremes.append))
    if extremes:
        tvm_ffi.structural_walk(extent, (tirx.FloorDiv, note))
    return found


def _sum_of_parts(total: tirx.Add) -> tvm.ir.Expr:
    """Turn min(4, n) + max(n - 4, 0), the parts of a cut axis, into n."""
    for least, rest in ((total.a, total.b), (total.b, total.a)):
        if isinstance(least, tirx.Min) and isinstance(rest, tirx.Max) and _is_zero(rest.b):
            for whole, part in ((least.a, least.b), (least.b, least.a)):
                if _is_zero(sym.Analyzer().simplify(whole - part - rest.a)):
                    return whole
    return total


def _is_zero(value: tvm.ir.Expr) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == 0


def _positive_divisor(remainder: tirx.FloorMod) -> tvm.ir.Expr:
    """Turn n % -4 into n - (n + 3) // 4 * 4, whose quotients and sums are simplified."""
    data, divisor = remainder.a, remainder.b
    if not isinstance(divisor, tirx.IntImm) or int(divisor) >= 0:
        return remainder
    return data + divisor * tirx.floordiv(data - divisor - 1, -divisor)


_RULES = ((tirx.Add, _sum_of_parts), (tirx.FloorMod, _positive_divisor))


def _split_quotient(quotient: tirx.FloorDiv) -> tvm.ir.Expr:
    """Turn max(n, 1) // 2 into max(n // 2, 1 // 2)."""
    data, divisor = quotient.a, quotient.b
    is_split = isinstance(data, tirx.Min | tirx.Max) and isinstance(divisor, tirx.IntImm)
    if not is_split or int(divisor) <= 0:
        return quotient
    return type(data)(tirx.floordiv(data.a, divisor), tirx.floordiv(data.b, divisor))


def _chooser(divisors: Mapping[tirx.Var, int]) -> Callable[[Any], Any]:
    """Callback that replaces a minimum or maximum by the operand that it always is.

    TVM does not see that n - n // 2 is at least 0, but sees it of 2 * q + r - q with r < 2.
    """
    analyzer, parts = sym.Analyzer(), {}
    for var, divisor in divisors.items():
        quotient, rest = (tirx.Var(name, var.ty) for name in ("quotient", "rest"))
        for each, end in ((quotient, _LARGEST), (rest, divisor)):
            analyzer.bind(each, tvm.ir.Range(tirx.const(0, "int64"), tirx.const(end, "int64")))
        parts[var] = quotient * divisor + rest

    def choose(expr: Any) -> Any:
        first, second = (
            tvm_ffi.structural_map(each, (tirx.Var, lambda var: parts.get(var, var)))
            for each in (expr.a, expr.b)
        )
        for larger, is_first in ((first - second, True), (second - first, False)):
            if analyzer.can_prove(analyzer.simplify(larger) >= 0):
                return expr.a if is_first == isinstance(expr, tirx.Max) else expr.b
        return expr

    return choose


def proven_ratio(extent: Any, other: Any) -> int | None:
    """The integer k for which `extent` is `k * other` for all symbols; None if there is none.

    Values at one assignment of the symbols give the candidate, algebra proves it.
    """
    if not isinstance(extent, tvm.ir.Expr) or not isinstance(other, tvm.ir.Expr):
        return None
    some = tirx.const(_SAMPLE, "int64")
    values = [
        simplified(tvm_ffi.structural_map(each, (tirx.Var, lambda _: some)))
        for each in (extent, other)
    ]
    if not all(isinstance(value, int) and value > 0 for value in values) or values[0] % values[1]:
        return None
    times = values[0] // values[1]
    difference = simplified(extent - other * times)
    return times if isinstance(difference, int) and difference == 0 else None


def bound_within(extent: Any, most: int) -> tuple[tirx.Var, int] | None:
    """The only symbol of an extent that increases with it, and its largest value for which the
    extent is at most `most`; None if that is unclear."""
    used = list(dict.fromkeys(tirx.analysis.undefined_vars(extent)))
    if len(used) != 1:
        return None
    (symbol,) = used

    def value(number: int) -> Any:
        own = tirx.const(number, symbol.ty)
        return simplified(
            tvm_ffi.structural_map(
                extent, (tirx.Var, lambda var: own if var.same_as(symbol) else var)
            )
        )

    low, high = 0, 1
    while high < _LARGEST and value(high) <= most:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) <= most else (low, middle)
    analyzer = sym.Analyzer()
    analyzer.bind(symbol, tvm.ir.Range(tirx.const(0, "int64"), tirx.const(low + 1, "int64")))
    return (symbol, low) if low and analyzer.can_prove(extent <= most) else None


def bounds(function: relax.Function) -> dict[str, int]:
    """The bounds of the symbols that have one, by name."""
    given = (function.attrs or {}).get(BOUNDS, {})
    return {
        name: int(given[str(symbol.name)])
        for symbol, name in names(function).items()
        if str(symbol.name) in given
    }


def with_bounds(mod: tvm.IRModule, bounds: Mapping[str, int]) -> tvm.IRModule:
    """Set upper bounds for symbols of `main`'s parameters.

    A library rejects larger extents, and allocates memory for the largest ones up front.

    Parameters
    ----------
    mod : tvm.IRModule
    bounds : dict of str to int
        By the symbols' names.

    Raises
    ------
    BuildError
        `main` has no such symbol, or a bound is not a positive integer.
    """
    if not bounds:
        return mod
    known = [str(symbol.name) for symbol in in_order(mod["main"])]
    for name, most in bounds.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise BuildError(f"main has no symbolic extent {name!r}; its symbols are: {listed}")
        if isinstance(most, bool) or not hasattr(most, "__index__") or int(most) < 1:
            raise BuildError(f"the bound of {name!r} must be a positive integer, not {most!r:.40}")
    main = mod["main"]
    all_bounds = {**dict((main.attrs or {}).get(BOUNDS, {})), **bounds}
    whole = {str(name): int(most) for name, most in all_bounds.items()}
    return with_functions(mod, {mod.get_global_var("main"): main.with_attr(BOUNDS, whole)})


@functools.cache
def named(name: str) -> tirx.Var:
    """The symbol of a name in types; equal names refer to one symbol."""
    return tirx.Var(name, "int64")
