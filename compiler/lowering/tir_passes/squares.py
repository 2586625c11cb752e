"""Squares of pixels that lie side by side, of nests that `schedules.x86.depthwise_dots` marks.

    mark: lane, dy, dx                                      one vector store:
      squares[.., lane, dy, dx] = image(y + dy, x + dx, lane)  -->  the lanes of four pixels in turn

Each pixel is a vector whose lanes go to every fourth byte: a shuffle of four vectors, of which LLVM
makes one or two instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, Op, TensorLoad

from schedules.generic.stages import IF_THEN_ELSE, substitute, uses
from schedules.nodes import nodes_of
from schedules.x86.depthwise_dots import MARK, SIDE

from ...tir import bound_values, expanded, has_attribute


def store_squares() -> tvm.transform.Pass:
    """The pass, on lowered functions: flat buffers."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="StoreSquares")
    def store(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        if not has_attribute(func.body, MARK):
            return func
        return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AttrStmt, _stored)))

    return store


def _stored(attr: tirx.AttrStmt) -> tirx.Stmt:
    if attr.attr_key != MARK:
        return attr
    lane, dy, dx = nodes_of(attr.body, tirx.For, order="pre")
    (store,) = nodes_of(attr.body, tirx.BufferStore)
    bound = bound_values(attr.body)
    lanes = int(lane.extent)
    nest = _Nest(lane.loop_var, lanes, (dy.loop_var, dx.loop_var))
    place = tirx.Ramp(nest.first(expanded(store.indices[0], bound)), 1, SIDE * SIDE * lanes)
    return tirx.BufferStore(store.buffer, nest.squares(expanded(store.value, bound)), [place])


class _Nest:
    """The loops over lanes and pixels of a square."""

    def __init__(self, lane: tirx.Var, lanes: int, pixel: tuple[tirx.Var, tirx.Var]) -> None:
        self._lane, self._lanes, self._pixel = lane, lanes, pixel
        self._analyzer = sym.Analyzer()

    def first(self, index: Any) -> Any:
        """An index in the first iteration of all loops."""
        return self._at(index, [(var, 0) for var in (self._lane, *self._pixel)])

    def squares(self, value: Any) -> Any:
        """The value in all iterations, as one vector."""
        if _is_choice(value) and not any(uses(value.args[0], var) for var in self._pixel):
            condition, one, other = value.args
            return tirx.if_then_else(condition, self.squares(one), self.squares(other))
        if isinstance(value, tirx.IntImm):
            return tirx.Broadcast(value, SIDE * SIDE * self._lanes)
        pixels = [
            self._pixel_at(value, list(zip(self._pixel, (dy, dx), strict=True)))
            for dy in range(SIDE)
            for dx in range(SIDE)
        ]
        count = len(pixels)
        order = [
            pixel * self._lanes + lane for lane in range(self._lanes) for pixel in range(count)
        ]
        return tirx.Shuffle(pixels, order)

    def _pixel_at(self, value: Any, place: Sequence[tuple[tirx.Var, int]]) -> Any:
        """The lanes of one pixel."""
        if _is_choice(value):
            condition, one, other = value.args
            branches = (self._pixel_at(one, place), self._pixel_at(other, place))
            return tirx.if_then_else(self._at(condition, place), *branches)
        if isinstance(value, TensorLoad):
            (index,) = value.indices
            first = self._at(index, [*place, (self._lane, 0)])
            return tirx.BufferLoad(value.source, [tirx.Ramp(first, 1, self._lanes)])
        return tirx.Broadcast(value, self._lanes)

    def _at(self, expr: Any, values: Sequence[tuple[tirx.Var, int]]) -> Any:
        bound = [(var, tirx.const(value, str(var.ty.dtype))) for var, value in values]
        return self._analyzer.simplify(substitute(expr, bound))


def _is_choice(value: Any) -> bool:
    is_known = isinstance(value, Call) and isinstance(value.op, Op)
    return is_known and value.op.name == IF_THEN_ELSE
