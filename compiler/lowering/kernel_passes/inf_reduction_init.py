"""Initialize max reductions with -inf and min reductions with inf, as IEEE 754 requires.

TVM starts a float max at the lowest finite number, and pads pooling windows with it: the maximum
of only negative infinities was -3.4e38.

    acc = -3.4e38                                   acc = -inf
    acc = max(acc, pad_temp[...])          ->       acc = max(acc, pad_temp[...])
    pad_temp = inside ? x[...] : -3.4e38            pad_temp = inside ? x[...] : -inf

Schedule primitives identify a reduction by its initial value, so it is replaced after scheduling,
and on GPUs after reductions across threads were lowered.
The padding is identified by the name of its block, and replaced before it is inlined.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from schedules.tir_visit import nodes_of

from ...primfuncs.query import op_name

Expr = Any

_PADDING = "pad_temp"
"""Name of the block that TOPI's pooling makes of its padded operand."""
_EXTREMES = (tirx.Max, tirx.Min)


def pad_with_infinity(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace the pad value of a pooling operand in an unscheduled function."""
    found = False

    def pad(call: Call) -> Expr:
        nonlocal found
        if op_name(call) != "prim.if_then_else":
            return call
        condition, inside, outside = call.args
        limit = _infinite(outside)
        if limit is None:
            return call
        found = True
        return tirx.if_then_else(condition, inside, limit)

    def in_block(block: s_tir.SBlock) -> s_tir.SBlock:
        if not str(block.name_hint).startswith(_PADDING):
            return block
        return _with_body(block, tvm_ffi.structural_map(block.body, (Call, pad)))

    body = tvm_ffi.structural_map(func.body, (s_tir.SBlock, in_block))
    return func.with_body(body) if found else func


def start_at_infinity(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace the initial values of float max and min reductions in a scheduled function."""
    accumulators = [
        each.buffer
        for each in nodes_of(func.body, tirx.BufferStore)
        if isinstance(each.value, _EXTREMES)
        and isinstance(each.value.a, TensorLoad)
        and each.value.a.source.same_as(each.buffer)
    ]
    if not accumulators:
        return func

    def start(store: tirx.BufferStore) -> tirx.BufferStore:
        limit = _infinite(store.value)
        if limit is None or not any(store.buffer.same_as(buffer) for buffer in accumulators):
            return store
        return tirx.BufferStore(store.buffer, limit, store.indices)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.BufferStore, start)))


def start_on_device() -> tvm.transform.Pass:
    """`start_at_infinity` for lowered kernels of a GPU."""
    return tirx.transform.prim_func_pass(
        lambda func, *_: start_at_infinity(func), opt_level=0, name="StartAtInfinity"
    )


def _infinite(value: Expr) -> Expr | None:
    """Infinity of the same sign for the largest or lowest finite number of a dtype; else None."""
    if not isinstance(value, tirx.FloatImm):
        return None
    dtype = str(value.ty.dtype)
    for limit, infinity in ((tirx.min_value, -math.inf), (tirx.max_value, math.inf)):
        if value.value == limit(dtype).value:
            return tirx.const(infinity, dtype)
    return None


def _with_body(block: s_tir.SBlock, body: tirx.Stmt) -> s_tir.SBlock:
    return s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, body,
        block.init, block.alloc_buffers, block.match_buffers, block.annotations,
    )  # fmt: skip
