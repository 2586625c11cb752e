"""Loops whose rounds are counted while the model runs, from ONNX's bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from compiler.ir.constants import constant
from compiler.ir.dynamic_shape import simplified, symbols_of
from compiler.ir.loops import Loop
from compiler.ir.scopes import set_type, tuple_of

from ..node import Node, constant_value

INT = "int64"


class Round(NamedTuple):
    """Results of one iteration: states after it, and slices of the stacked results."""

    condition: relax.Expr | None  # one bool: whether there is a next iteration, if the body decides
    states: list[relax.Expr]
    slices: list[relax.Expr]


Body = Callable[[relax.Var, list[relax.Var]], Round]
"""Converts a round, from its number, a tensor () of int64, and the states in front of it."""


def run_rounds(
    node: Node,
    count: relax.Expr | None,
    condition: relax.Expr | None,
    states: Sequence[relax.Expr],
    body: Body,
) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """The last states of a loop, and its stacked results, along a new first axis.

    `count` (one int64) is the most iterations, `condition` (one bool) whether there is a first one.
    Extents of states that iterations change become symbolic dimensions.
    """
    limit = None if count is None else node.emit(relax.op.reshape(count, ()))
    start = constant(np.array(0, INT))
    more = _more(node, start, limit, condition)
    types: list[Any] = [_type_of(node, state) for state in states]
    outside = {symbol for ty in types for symbol in symbols_of(ty)}
    while True:
        made = _function(node, types, limit, body)
        wider = [_wider(node, *pair) for pair in zip(types, made.states, strict=True)]
        if all(new is old for new, old in zip(wider, types)):
            break
        types = wider
    outside.update(*(symbols_of(each.ty) for each in made.captured))
    rounds = tirx.Var("rounds", INT)
    stacked = [
        relax.TensorType([rounds, *_known(ty.shape.values[1:], outside)], ty.dtype)
        for ty in made.slices
    ]
    loop = Loop(
        made.gvar,
        _join(node, made.slices) if stacked else made.gvar,
        more,
        tuple_of([start, *states]),
        tuple_of([_empty(node, ty, outside) for ty in made.slices]),
        tuple_of(made.captured),
        tuple_of(_count(node, limit) if made.is_counted and _is_true(condition) else []),
    )
    wanted = [
        *(relax.TensorType(_known(ty.shape.values, outside), ty.dtype) for ty in types),
        *stacked,
    ]
    unknown = [relax.TensorType(dtype=ty.dtype, ndim=ty.ndim) for ty in wanted]
    result = node.emit(loop.call(relax.TupleType([start.ty, *unknown])))
    found = [
        node.builder.match_cast(node.emit(relax.TupleGetItem(result, index + 1)), ty)
        for index, ty in enumerate(wanted)
    ]
    return found[: len(states)], found[len(states) :]


class _Function(NamedTuple):
    """Body of a loop as a function of the module, and result types; slices have extent 1 first."""

    gvar: tvm.ir.GlobalVar
    states: list[relax.TensorType]
    slices: list[relax.TensorType]
    captured: list[relax.Expr]  # read in addition to the states
    is_counted: bool  # only their number ends the iterations


def _function(
    node: Node, types: Sequence[relax.TensorType], limit: relax.Expr | None, body: Body
) -> _Function:
    number = relax.Var("round", relax.TensorType((), INT))
    states = [relax.Var(f"state_{index}", ty) for index, ty in enumerate(types)]
    node.builder._begin_binding_block()
    try:
        made = body(number, states)
        following = node.emit(relax.op.add(number, constant(np.array(1, INT))))
        more = _more(node, following, limit, made.condition)
        slices = [node.emit(relax.op.expand_dims(each, 0)) for each in made.slices]
        result = node.emit(tuple_of([more, following, *made.states, *slices]))
    finally:
        block = node.builder._end_block()
    sequence = set_type(relax.SeqExpr([block], result), result.ty)
    own = {tvm_ffi.Object.__hash__(each) for each in (number, *states)}
    captured: list[relax.Expr] = [
        var
        for var in relax.analysis.free_vars(sequence)
        if not tvm.ir.is_prim_expr(var) and tvm_ffi.Object.__hash__(var) not in own
    ]
    parameters = [number, *states, *captured]
    symbols = list(relax.analysis.free_symbolic_vars(relax.Function(parameters, sequence)))
    if symbols:
        # Ahead of the captured tensors: TVM must know a symbol before it checks `2 * n`.
        parameters.insert(1 + len(states), relax.Var("extents", relax.ShapeType(symbols)))
        captured.insert(0, node.builder.normalize(relax.ShapeExpr(symbols)))
    gvar = _add(node, "loop", relax.Function(parameters, sequence))
    fields = result.ty.fields
    behind = 2 + len(states)
    is_counted = limit is not None and _is_true(made.condition)
    return _Function(gvar, fields[2:behind], fields[behind:], captured, is_counted)


def _add(node: Node, name: str, function: relax.Function) -> tvm.ir.GlobalVar:
    """The function in the module, with variables of its own; a public one, which stays whole."""
    unique = f"{name}_{len(node.builder.get().get_global_vars())}"
    function = relax.utils.copy_with_new_vars(function).with_attr("global_symbol", unique)
    return node.builder.add_func(function, unique)


def _more(
    node: Node, number: relax.Expr, limit: relax.Expr | None, condition: relax.Expr | None
) -> relax.Expr:
    """Whether a round of this number is to be run: a tensor () of bool."""
    parts = []
    if limit is not None:
        parts.append(node.emit(relax.op.less(number, limit)))
    if not _is_true(condition):
        parts.append(node.emit(relax.op.reshape(condition, ())))
    if not parts:
        return constant(np.array(True))
    return parts[0] if len(parts) == 1 else node.emit(relax.op.logical_and(*parts))


def _count(node: Node, limit: relax.Expr) -> list[relax.Expr]:
    """The number of rounds up to a limit: a tensor (1,) of int64."""
    count = relax.op.maximum(limit, constant(np.array(0, INT)))
    return [node.emit(relax.op.reshape(count, (1,)))]


def _is_true(condition: relax.Expr | None) -> bool:
    """Whether a condition holds in any case; one that is left out does."""
    known = constant_value(condition)
    return condition is None or (known is not None and bool(known.all()))


def _type_of(node: Node, value: relax.Expr) -> relax.TensorType:
    ty = value.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise node.unsupported(
            f"a loop whose rounds are counted at run time carries {ty}; it can carry tensors of "
            "known rank"
        )
    return ty


def _wider(node: Node, before: relax.TensorType, behind: Any) -> relax.TensorType:
    """The type of a state in every round: where a round changes an extent, a symbol of its own."""
    behind = behind if isinstance(behind, relax.TensorType) else None
    if behind is None or behind.dtype != before.dtype or behind.ndim != before.ndim:
        raise node.unsupported(f"a round makes {behind} of a state that is {before}")
    if not isinstance(behind.shape, relax.ShapeExpr):
        raise node.unsupported("a round's result has a shape that is known only at run time")
    extents = list(before.shape.values)
    changes = [
        axis
        for axis, (old, new) in enumerate(zip(extents, behind.shape.values))
        if not _is_own(old) and not _is_zero(simplified(new - old))
    ]
    for axis in changes:
        extents[axis] = tirx.Var(_OWN, INT)
    return relax.TensorType(extents, before.dtype) if changes else before


_OWN = "extent_of_state"


def _is_zero(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 0


def _is_own(extent: Any) -> bool:
    return isinstance(extent, tirx.Var) and extent.name == _OWN


def _known(extents: Iterable[Any], outside: set[Any]) -> list[Any]:
    """Extents as they are called outside of the loop; those that only rounds know get symbols."""
    return [
        extent
        if outside.issuperset(tirx.analysis.undefined_vars(extent))
        else tirx.Var("extent", INT)
        for extent in extents
    ]


def _empty(node: Node, ty: relax.TensorType, outside: set[Any]) -> relax.Expr:
    """A stacked result of no round; extents that only rounds know are 0."""
    extents = [
        extent if outside.issuperset(tirx.analysis.undefined_vars(extent)) else 0
        for extent in ty.shape.values[1:]
    ]
    return node.emit(relax.op.zeros(relax.ShapeExpr([0, *extents]), ty.dtype))


def _join(node: Node, slices: Sequence[relax.TensorType]) -> tvm.ir.GlobalVar:
    """A function that puts each of some stacked results behind another one."""
    extents = [_known(ty.shape.values[1:], set()) for ty in slices]
    earlier, later = (
        [
            relax.Var(
                f"{name}_{index}",
                relax.TensorType([tirx.Var(f"{name}_{index}", INT), *inner], ty.dtype),
            )
            for index, (ty, inner) in enumerate(zip(slices, extents))
        ]
        for name in ("earlier", "later")
    )
    node.builder._begin_binding_block()
    joined = [node.emit(relax.op.concat(pair, 0)) for pair in zip(earlier, later)]
    result = node.emit(tuple_of(joined))
    sequence = set_type(relax.SeqExpr([node.builder._end_block()], result), result.ty)
    return _add(node, "join", relax.Function([*earlier, *later], sequence))
