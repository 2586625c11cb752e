"""Put barriers into the scan of TVM 0.27 for GPUs.

A thread of it adds to its sums in shared memory what another thread of its warp has there, which
may have changed since, or not yet. Here every thread reads between two barriers of the warp.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from schedules.cuda.gemm.intrinsics import barrier_of_warp
from schedules.generic.stages import substitute
from schedules.tir_visit import nodes_of


def with_barriers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with barriers around each read of a neighbor's sum.

    before   for j in vectorized(4):  if c:  s[x + j] = s[x + j] + s[y]
    after    barrier;  carry = s[y] if c else 0;  barrier
             for j in vectorized(4):  if c:  s[x + j] = s[x + j] + carry
    """
    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, _ordered)))


def _ordered(loop: tirx.For) -> Any:
    stores, choices = nodes_of(loop.body, tirx.BufferStore), nodes_of(loop.body, tirx.IfThenElse)
    if loop.kind != tirx.ForKind.VECTORIZED or len(stores) != 1 or len(choices) != 1:
        return loop
    shared, value = stores[0].buffer, stores[0].value
    if shared.scope() != "shared" or not isinstance(value, tirx.Add):
        return loop
    sums, neighbor = value.a, value.b
    if not all(isinstance(each, TensorLoad) and each.source == shared for each in (sums, neighbor)):
        return loop
    bound = [(each.var, each.value) for each in nodes_of(loop.body, tirx.Bind)]
    source = substitute(neighbor, bound)
    zero = tirx.const(0, shared.dtype)
    carry = tirx.decl_buffer((1,), shared.dtype, "carry", scope="local")
    read = tirx.BufferLoad(carry, [0])
    new = tirx.BufferStore(shared, sums + read, stores[0].indices)
    body = tvm_ffi.structural_map(loop.body, (tirx.BufferStore, lambda _: new))
    return tirx.SeqStmt([
        tirx.AllocBuffer(carry),
        tirx.Evaluate(barrier_of_warp()),
        tirx.BufferStore(carry, tirx.if_then_else(choices[0].condition, source, zero), [0]),
        tirx.Evaluate(barrier_of_warp()),
        tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body),
    ])  # fmt: skip
