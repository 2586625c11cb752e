"""Tensor intrinsics that add to each lane of a vector: C[lanes] += products of the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


class Operand(NamedTuple):
    """Shape, dtype and, unless it is compact, strides of an operand, in elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None


def _whole(buffer: Any) -> Any:
    return buffer[tuple(slice(0, extent) for extent in buffer.shape)]


def register(
    name: str,
    sums: Operand,
    operands: Sequence[Operand],
    loops: Sequence[int],
    product: Callable[..., Any],
    add: Callable[..., Any],
) -> str:
    """Register an intrinsic under a name, and return the name.

    `sums`: C, a vector. `loops`: extents of the loops, outermost first; the one over the lanes is
    0. `product(*operands, lane, *steps)`: what one step adds to a lane; `steps` are the indices of
    the other loops. `add(vector, *operands)`: the whole sum of a vector of C, by instructions.
    """
    (lanes,) = sums.shape
    at = list(loops).index(0)
    extents = [extent or lanes for extent in loops]

    def function(body: Callable[..., None]) -> Any:
        with IRBuilder() as builder:
            with T.prim_func(s_tir=True):
                T.func_name(body.__name__)
                *inputs, total = (
                    T.arg(letter, T.buffer(shape, dtype, strides=strides, offset_factor=1))
                    for letter, (shape, dtype, strides) in zip("ABCD", (*operands, sums))
                )
                with T.sblock("root"):
                    T.reads([_whole(each) for each in (total, *inputs)])
                    T.writes([_whole(total)])
                    body(total, inputs)
            return builder.get()

    def description(total: Any, inputs: list[Any]) -> None:
        with T.grid(*extents) as indices, T.sblock("update"):
            reduced = [index for i, index in enumerate(indices) if i != at]
            lane, *steps = T.axis.remap("S" + "R" * len(reduced), [indices[at], *reduced])
            T.buffer_store(total, total[lane] + product(*inputs, lane, *steps), [lane])

    def implementation(total: Any, inputs: list[Any]) -> None:
        vector = total.vload([0], dtype=f"{sums.dtype}x{lanes}")
        T.buffer_store(total, add(vector, *inputs), [tirx.Ramp(T.int32(0), T.int32(1), lanes)])

    TensorIntrin.register(name, function(description), function(implementation))
    return name
