"""Interleave adjacent pixels in nests that `schedules.x86.conv.depthwise_dot` marks.

    mark: lane, dy, dx                                      one vector store:
      squares[.., lane, dy, dx] = image(y + dy, x + dx, lane)  -->  the lanes of four pixels in turn

Each pixel is a vector whose lanes go to every fourth byte. For 16 lanes that is one `vpermb` of the
four concatenated vectors (AVX512-VBMI), or a `vpermd` and a `vpshufb`; LLVM handles other counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad
from tvm.target import Target, codegen

from schedules.generic.stages import IF_THEN_ELSE, substitute, uses
from schedules.tir_visit import nodes_of
from schedules.x86.conv.depthwise_dot import MARK, SIDE

from ...primfuncs.query import bound_values, expanded, has_attribute, op_name, with_llvm

_FUNCTION = "baton_squares"
_LANES = 16
_GROUPS = [4 * pixel + group for group in range(4) for pixel in range(SIDE * SIDE)]

# LLVM would expand a shuffle with known order into a dozen instructions.
_SQUARES = """
declare <64 x i8> @{instruction}(<64 x i8>, <64 x i8>)
define linkonce_odr <64 x i8> @{name}(
    <16 x i8> %a, <16 x i8> %b, <16 x i8> %c, <16 x i8> %d) alwaysinline {{
  %ab = shufflevector <16 x i8> %a, <16 x i8> %b, <32 x i32> <{both}>
  %cd = shufflevector <16 x i8> %c, <16 x i8> %d, <32 x i32> <{both}>
  %bytes = shufflevector <32 x i8> %ab, <32 x i8> %cd, <64 x i32> <{all}>
  %words = bitcast <64 x i8> %bytes to <16 x i32>
  %moved = shufflevector <16 x i32> %words, <16 x i32> poison, <16 x i32> <{words}>
  %groups = bitcast <16 x i32> %moved to <64 x i8>
  %places = call <64 x i8> asm "", "=v,0"(<64 x i8> <{places}>)
  %squares = call <64 x i8> @{instruction}(<64 x i8> %groups, <64 x i8> %places)
  ret <64 x i8> %squares
}}
"""


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="StoreSquares")
def store_squares(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on lowered functions: flat buffers."""
    if not has_attribute(func.body, MARK):
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.AttrStmt, _stored))
    if any(_is_call_of(call, _FUNCTION) for call in nodes_of(body, Call)):
        body = with_llvm(body, _text(func.attrs["target"]))
    return func.with_body(body)


def _stored(attr: tirx.AttrStmt) -> tirx.Stmt:
    if attr.attr_key != MARK:
        return attr
    lane, dy, dx = nodes_of(attr.body, tirx.For, order="pre")
    (store,) = nodes_of(attr.body, tirx.BufferStore)
    bound = bound_values(attr.body)
    nest = _Nest(lane, (dy.loop_var, dx.loop_var))
    places = nest.places(expanded(store.indices[0], bound))
    return tirx.BufferStore(store.buffer, nest.squares(expanded(store.value, bound)), [places])


class _Nest:
    """The loops over lanes and pixels of a square."""

    def __init__(self, lane: tirx.For, pixel: tuple[tirx.Var, tirx.Var]) -> None:
        self._lane, self._lanes = lane.loop_var, int(lane.extent)
        self._pixel = pixel
        self._analyzer = sym.Analyzer()

    def places(self, index: Any) -> Any:
        """An index in all iterations; they lie side by side."""
        first = self._at(index, [(var, 0) for var in (self._lane, *self._pixel)])
        return tirx.Ramp(first, 1, SIDE * SIDE * self._lanes)

    def squares(self, value: Any) -> Any:
        """The value in all iterations, as one vector."""
        if op_name(value) == IF_THEN_ELSE and not any(
            uses(value.args[0], var) for var in self._pixel
        ):
            condition, one, other = value.args
            return tirx.if_then_else(condition, self.squares(one), self.squares(other))
        if isinstance(value, tirx.IntImm):
            return tirx.Broadcast(value, SIDE * SIDE * self._lanes)
        pixels = [
            self._pixel_at(value, list(zip(self._pixel, (dy, dx), strict=True)))
            for dy in range(SIDE)
            for dx in range(SIDE)
        ]
        return _in_turn(pixels, self._lanes)

    def _pixel_at(self, value: Any, place: Sequence[tuple[tirx.Var, int]]) -> Any:
        if op_name(value) == IF_THEN_ELSE:
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


def _in_turn(pixels: Sequence[Any], lanes: int) -> Any:
    """The lanes of four vectors in turn."""
    if lanes == _LANES:
        return tirx.call_pure_extern(f"uint8x{len(pixels) * lanes}", _FUNCTION, *pixels)
    order = [pixel * lanes + lane for lane in range(lanes) for pixel in range(len(pixels))]
    return tirx.Shuffle(list(pixels), order)


def _text(target: Target) -> str:
    """The function that takes the 16 lanes of four vectors in turn."""
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    instruction = "permvar.qi" if "avx512vbmi" in features else "pshuf.b"
    # Of pixels' groups of four bytes `pshufb` can only take those of one quarter of a register.
    words = range(_LANES) if instruction == "permvar.qi" else _GROUPS
    places = [_LANES * pixel + lane for lane in range(_LANES) for pixel in range(SIDE * SIDE)]
    if instruction == "pshuf.b":
        places = [4 * pixel + lane % 4 for lane in range(_LANES) for pixel in range(SIDE * SIDE)]
    return _SQUARES.format(
        name=_FUNCTION,
        instruction=f"llvm.x86.avx512.{instruction}.512",
        both=", ".join(f"i32 {byte}" for byte in range(2 * _LANES)),
        all=", ".join(f"i32 {byte}" for byte in range(4 * _LANES)),
        words=", ".join(f"i32 {word}" for word in words),
        places=", ".join(f"i8 {place}" for place in places),
    )


def _is_call_of(call: Call, name: str) -> bool:
    return any(isinstance(arg, tvm.ir.StringImm) and str(arg.value) == name for arg in call.args)
