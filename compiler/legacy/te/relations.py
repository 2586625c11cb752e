"""How the loops of a stage come from its axes: extents go down, indices go up.

    i (10)   split by 4   ->   i.outer (3), i.inner (4)      i = i.outer * 4 + i.inner < 10
    i, j     fused        ->   i.j.fused (10 * 8)            i = fused // 8, j = fused % 8

Dictionaries are keyed by the variable of an `IterVar`. All loops start at 0; where an axis starts
elsewhere, its first index is added to what the loops give.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import sym, tirx


class _Separator:
    """Stands between the dimensions of memory that has several, in what a mapping returns."""

    def __repr__(self) -> str:
        return "AXIS_SEPARATOR"


AXIS_SEPARATOR = _Separator()


class Layout:
    """A one-to-one map from a tensor's indices to those of its buffer.

    `mapping`: (an index for each dimension) -> indices of the buffer. `AXIS_SEPARATOR` among them
    has no effect: all memory that Baton compiles for has one dimension. `shape`: the tensor's.
    `dtype`: of the indices.
    Raises tvm.error.InternalError, TypeError: elements of the buffer would be left over or used
    twice, or the mapping returns other things than indices.
    """

    def __init__(self, mapping: Callable[..., Any], shape: Sequence[Any], dtype: str) -> None:
        @functools.wraps(mapping)
        def flat(*args: Any, **kwargs: Any) -> Any:
            made = mapping(*args, **kwargs)
            made = list(made) if isinstance(made, (list, tuple, tvm.ir.Array)) else [made]
            indices = [each for each in made if each is not AXIS_SEPARATOR]
            return [tirx.const(i, dtype) if isinstance(i, int) else i for i in indices]

        self._map = tirx.IndexMap.from_func(flat, ndim=len(shape), index_dtype=dtype)
        self._inverse = self._map.inverse(list(shape))
        self.shape = list(self._map.map_shape(list(shape)))
        self.names = [
            str(i.name) if isinstance(i, tirx.Var) else f"axis{number}"
            for number, i in enumerate(self._map.final_indices)
        ]

    def physical(self, indices: Sequence[Any]) -> list[Any]:
        """Where an element of the tensor lies."""
        return list(self._map.map_indices(list(indices)))

    def logical(self, indices: Sequence[Any]) -> list[Any]:
        """Which element lies there."""
        return list(self._inverse.map_indices(list(indices)))


Expr = Any
IterVar = Any
Var = Any


@dataclass(frozen=True, eq=False)
class Split:
    """`parent` became `outer` and `inner`; either the inner extent is given, or the outer.

    Unless it `is_checked`, an uneven split may run past the end of its parent.
    """

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None
    nparts: Expr | None
    is_checked: bool = True


@dataclass(frozen=True, eq=False)
class Fuse:
    """`outer` and `inner` became `fused`."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(frozen=True, eq=False)
class Singleton:
    """`iter` is a new loop of extent 1."""

    iter: IterVar


@dataclass(frozen=True, eq=False)
class Transform:
    """`parents`, in a new order or number, became `made`, which have domains of their own."""

    parents: tuple[IterVar, ...]
    made: tuple[IterVar, ...]
    layout: Layout


Relation = Split | Fuse | Singleton | Transform


def position(iter_vars: Sequence[IterVar], iter_var: IterVar) -> int | None:
    """Where an `IterVar` stands among others; None if it doesn't."""
    for index, other in enumerate(iter_vars):
        if other.same_as(iter_var):
            return index
    return None


def like(expr: Expr, value: float) -> Expr:
    """A constant of an expression's type."""
    return tirx.const(value, str(expr.ty.dtype))


def constant(value: Expr) -> int | None:
    """The number that an expression is; None for others."""
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, tirx.IntImm) else None


def pass_extents_down(
    relations: Sequence[Relation],
    extents: dict[Var, Expr],
    is_fixed: Callable[[IterVar], bool],
    analyzer: sym.Analyzer,
) -> None:
    """Fill in the extents of the loops made by `relations`.

    `extents`: those of the axes; gets the others. `is_fixed`: whether a loop keeps the length it
    was given although its parent is shorter, as a loop does that threads or an intrinsic run.
    """
    for relation in relations:
        if isinstance(relation, Split):
            parent = extents[relation.parent.var]
            if relation.factor is not None:
                inner = _shorter(relation.factor, parent, is_fixed(relation.inner))
                outer = analyzer.simplify(tirx.ceildiv(parent, inner))
            else:
                outer = _shorter(relation.nparts, parent, is_fixed(relation.outer))
                inner = analyzer.simplify(tirx.ceildiv(parent, outer))
            extents[relation.outer.var], extents[relation.inner.var] = outer, inner
        elif isinstance(relation, Fuse):
            product = extents[relation.outer.var] * extents[relation.inner.var]
            extents[relation.fused.var] = analyzer.simplify(product)
        elif isinstance(relation, Transform):
            extents.update((loop.var, loop.dom.extent) for loop in relation.made)
        else:
            extents[relation.iter.var] = like(relation.iter.var, 1)


def _shorter(length: Expr, parent: Expr, fixed: bool) -> Expr:
    asked, there = constant(length), constant(parent)
    if fixed or asked is None or there is None or asked <= there:
        return length
    return parent


def pass_values_up(
    relations: Sequence[Relation], extents: Mapping[Var, Expr], values: dict[Var, Expr]
) -> None:
    """Fill in the indices of axes and intermediate loops; `values` has those of the last loops.

    Relations whose loops have no value are left out.
    """
    for relation in reversed(relations):
        if isinstance(relation, Split):
            outer, inner = values.get(relation.outer.var), values.get(relation.inner.var)
            if outer is not None and inner is not None:
                values[relation.parent.var] = outer * extents[relation.inner.var] + inner
        elif isinstance(relation, Fuse):
            fused = values.get(relation.fused.var)
            if fused is not None:
                inner = extents[relation.inner.var]
                values[relation.outer.var] = tirx.floordiv(fused, inner)
                values[relation.inner.var] = tirx.floormod(fused, inner)
        elif isinstance(relation, Transform):
            made = [values.get(loop.var) for loop in relation.made]
            if all(value is not None for value in made):
                before = relation.layout.logical(made)
                values.update(zip((loop.var for loop in relation.parents), before))


def pass_values_down(
    relations: Sequence[Relation], extents: Mapping[Var, Expr], values: dict[Var, Expr]
) -> None:
    """Fill in the indices of the loops; `values` has those of the axes."""
    for relation in relations:
        if isinstance(relation, Split):
            inner = extents[relation.inner.var]
            parent = values[relation.parent.var]
            values[relation.outer.var] = tirx.floordiv(parent, inner)
            values[relation.inner.var] = tirx.floormod(parent, inner)
        elif isinstance(relation, Fuse):
            inner = extents[relation.inner.var]
            outer = values[relation.outer.var]
            values[relation.fused.var] = outer * inner + values[relation.inner.var]
        elif isinstance(relation, Transform):
            before = [values[loop.var] for loop in relation.parents]
            after = relation.layout.physical(before)
            values.update(zip((loop.var for loop in relation.made), after))
        else:
            values[relation.iter.var] = like(relation.iter.var, 0)


def overruns(
    relations: Sequence[Relation],
    extents: Mapping[Var, Expr],
    values: Mapping[Var, Expr],
    analyzer: sym.Analyzer,
) -> list[tuple[Var, Expr]]:
    """Conditions that keep splits without a whole number of parts inside of what they split.

    Returns (variable of the split loop, condition) each, without those that always hold.
    """
    found = []
    for relation in relations:
        if not isinstance(relation, Split) or not relation.is_checked:
            continue
        if relation.parent.var in values:
            parent = extents[relation.parent.var]
            covered = extents[relation.outer.var] * extents[relation.inner.var]
            inside = values[relation.parent.var] < parent
            if not analyzer.can_prove(covered <= parent) and not analyzer.can_prove(inside):
                found.append((relation.parent.var, inside))
    return found


def roots_of(
    relations: Sequence[Relation], axes: Sequence[IterVar]
) -> dict[Var, tuple[IterVar, ...]]:
    """The axes that each loop of a stage is made from."""
    roots: dict[Var, tuple[IterVar, ...]] = {axis.var: (axis,) for axis in axes}
    for relation in relations:
        if isinstance(relation, Split):
            roots[relation.outer.var] = roots[relation.inner.var] = roots[relation.parent.var]
        elif isinstance(relation, Fuse):
            outer, inner = roots[relation.outer.var], roots[relation.inner.var]
            new = [axis for axis in inner if position(outer, axis) is None]
            roots[relation.fused.var] = (*outer, *new)
        elif isinstance(relation, Transform):
            both = tuple(axis for loop in relation.parents for axis in roots[loop.var])
            roots.update((loop.var, both) for loop in relation.made)
        else:
            roots[relation.iter.var] = ()
    return roots
