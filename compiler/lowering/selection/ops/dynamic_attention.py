"""Attention over dynamic extents, recognized like attention over static ones.

Each symbol is replaced by a number, for two different numbers, and both functions are searched. An
attention found in both exists for all extents. A number that differs is mapped to its symbol. An
attention over an extent that is the same for both, such as min(n, 512), is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import tvm
from tvm import relax

from schedules.dynamic_rows import with_extents
from schedules.generic.stages import substitute

from ....ir import dynamic_shape as symbols

# Primes that are unlikely as extents of a model; quotients by strides and patches differ, too.
_NUMBERS = (
    (1000003, 2000003, 3000017, 4000037, 5000011, 6000011),
    (1300021, 2600011, 3900031, 5200007, 6500003, 7800017),
)


def symbols_in(workload: Any) -> list[tvm.tirx.Var]:
    """The symbols in the extents of a workload; none if all of these are numbers."""
    extents = [leaf for leaf in _leaves(workload) if isinstance(leaf, tvm.ir.Expr)]
    found = (var for extent in extents for var in tvm.tirx.analysis.undefined_vars(extent))
    return list(dict.fromkeys(found))


def renamed(part: Any, symbols: Sequence[tuple[tvm.tirx.Var, Any]]) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        return replace(
            part, **{each.name: renamed(getattr(part, each.name), symbols) for each in fields(part)}
        )
    if isinstance(part, tuple):
        return tuple(renamed(each, symbols) for each in part)
    return substitute(part, symbols) if isinstance(part, tvm.ir.Expr) else part


def attention_of_symbols(
    function: relax.Function, find: Callable[[relax.Function], Mapping[relax.Var, Any]]
) -> dict[relax.Var, Any]:
    """Attentions in a function with symbolic extents, by the variable of the result."""
    known = symbols.of_types(function)
    if len(known) > len(_NUMBERS[0]):
        return {}
    extents = symbols.extents_of_types(function)
    values: dict[tuple[int, int], Any] = {}
    alike: set[int] = set()
    found = []
    for numbers in _NUMBERS:
        bound = with_extents(function, list(zip(known, numbers)))
        own = dict(zip(_variables(bound), _variables(function), strict=True))
        found.append([(own.get(var), each, own) for var, each in find(bound).items()])
    for extent in extents:
        both = [with_extents(extent, list(zip(known, numbers))) for numbers in _NUMBERS]
        if all(isinstance(each, tvm.tirx.IntImm) for each in both):
            values[int(both[0]), int(both[1])] = extent
            alike |= {int(both[0])} & {int(both[1])}
    result = {}
    for (var, first, own), (_, second, _) in zip(*found):
        workload = _merged(first.workload, second.workload, values, alike)
        operands = [own.get(each, each) for each in (first.q, first.k, first.v)]
        masks = tuple(own.get(each, each) for each in first.masks)
        if var is not None and workload is not None:
            q, k, v = operands
            products = tuple(own[each] for each in first.products)
            result[var] = replace(
                first, q=q, k=k, v=v, masks=masks, workload=workload, products=products
            )
    return result


def _variables(function: relax.Function) -> list[relax.Var]:
    """Parameters and bound variables, in their order."""
    bound = [binding.var for block in function.body.blocks for binding in block.bindings]
    return [*function.params, *bound]


def _leaves(part: Any) -> list[Any]:
    if is_dataclass(part):
        return [leaf for field in fields(part) for leaf in _leaves(getattr(part, field.name))]
    if isinstance(part, tuple):
        return [leaf for each in part for leaf in _leaves(each)]
    return [part]


def _merged(
    left: Any, right: Any, values: Mapping[tuple[int, int], Any], alike: Collection[int]
) -> Any | None:
    """A workload with the extents that are `left` with some numbers and `right` with others.

    None if one is unknown, or is `alike` for all numbers although it depends on symbols.
    """
    if is_dataclass(left) and not isinstance(left, type):
        if type(left) is not type(right):
            return None
        parts = {}
        for field in fields(left):
            own = getattr(left, field.name)
            parts[field.name] = _merged(own, getattr(right, field.name), values, alike)
            if parts[field.name] is None and own is not None:
                return None
        return replace(left, **parts)
    if isinstance(left, tuple):
        if not isinstance(right, tuple) or len(left) != len(right):
            return None
        merged = tuple(_merged(a, b, values, alike) for a, b in zip(left, right))
        return None if None in merged else merged
    if left == right:
        return None if isinstance(left, int) and left in alike else left
    is_extent = isinstance(left, int) and isinstance(right, int)
    return values.get((left, right)) if is_extent else None
