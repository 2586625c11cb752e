"""Loops with a dynamic number of iterations, as one call.

    call_pure_packed("baton.loop", body, join, more, (states), (empty), (captured), (count))

`body` is a function of the states and the captured values. It computes the loop condition, the
states after an iteration, and its slice of each stacked result, of extent 1 along the first axis.
`join` concatenates two stacked results. The call returns the last states and the stacked results;
without an iteration, the initial states and `empty`. `lowering.codegen.loops` lowers it to
functions of the virtual machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
from tvm import relax

LOOP = "baton.loop"


class Loop(NamedTuple):
    body: tvm.ir.GlobalVar  # `join` is the body itself where nothing is stacked
    join: tvm.ir.GlobalVar
    more: relax.Expr  # whether there is a first iteration: a tensor () of bool
    # Initial states; the stacked results of no iteration; other values that the body reads
    states: relax.Tuple
    empty: relax.Tuple
    captured: relax.Tuple
    # (1,) of int64: trip count if known beforehand; empty if the loop condition decides
    count: relax.Tuple

    def call(self, result: relax.TupleType) -> relax.Call:
        """The call; `result` is the type of the last states and the stacked results."""
        return relax.op.call_pure_packed(LOOP, *self, ty_args=[result])


def loop_of(value: Any) -> Loop | None:
    """Parse a bound value as a loop; None if it is not one."""
    if not isinstance(value, relax.Call):
        return None
    args: Sequence[Any] = value.args
    if value.op == tvm.ir.Op.get("relax.call_pure_packed"):
        callee, *args = args
    else:
        callee = value.op
    is_loop = isinstance(callee, relax.ExternFunc) and str(callee.global_symbol) == LOOP
    return Loop(*args) if is_loop else None


def erased(ty: Any) -> Any:
    """A type without extents: the part of a type that holds in every iteration."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([erased(field) for field in ty.fields])
    if isinstance(ty, relax.ShapeType):
        return relax.ShapeType(ndim=ty.ndim)
    return relax.TensorType(dtype=ty.dtype, ndim=ty.ndim)
