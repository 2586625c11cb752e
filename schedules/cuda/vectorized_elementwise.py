"""Threads that compute vectors of neighboring results, which memory has side by side.

elementwise  out[4 i : 4 i + 4] = f(in[4 i : 4 i + 4], ...)     operands and results as vectors
windows      acc[0 : 4] += x[..., 4 c : 4 c + 4] * w[4 c : 4 c + 4]    channels are innermost
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV

from ..tir_visit import nodes_of
from .blocks import Stage
from .limits import WARP, Limits

LANES = 4
"""TVM 0.27 writes wrong code for some vectors of eight."""
DTYPES = ("float32", "float16", "bfloat16")
_IF_THEN_ELSE = tvm.ir.Op.get("prim.if_then_else")


def fewest(limits: Limits) -> int:
    """Results from which on vectors leave no multiprocessor without enough threads."""
    return limits.sms * limits.threads_per_sm // LANES


def reads(schedule: s_tir.Schedule, stage: Stage) -> list[int] | None:
    """Which operands of an elementwise stage are read as vectors; None where results are none."""
    block = schedule.get(stage.block)
    last = block.iter_vars[-1].var if len(block.iter_vars) else None
    if not isinstance(block.body, tirx.BufferStore) or _is_conditional(block.body):
        return None
    if not _is_vector(block.writes[0], last):
        return None
    return [at for at, region in enumerate(block.reads) if _is_vector(region, last)]


def map_vectors(
    schedule: s_tir.Schedule, block: SBlockRV, operands: list[int], threads: int
) -> None:
    """Bind an elementwise stage: a thread has a vector of the results."""
    copies = [schedule.cache_read(block, operand, "local") for operand in operands]
    store = schedule.cache_write(block, 0, "local")
    thread, lane = _bind(schedule, store, threads)
    schedule.vectorize(lane)
    for each in (block, *copies):
        schedule.compute_at(each, thread, preserve_unit_loops=True)
    schedule.unroll(schedule.get_loops(block)[-1])
    for copy in copies:
        schedule.vectorize(schedule.get_loops(copy)[-1])


def are_summed(schedule: s_tir.Schedule, stage: Stage, store: SBlockRV) -> bool:
    """Whether a reduction adds products or elements that vectors have, and `store` stores them."""
    block, storing = schedule.get(stage.block), schedule.get(store)
    spatial = [v.var for v in block.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    if not spatial or not isinstance(block.body, tirx.BufferStore):
        return False
    if not isinstance(block.body.value, tirx.Add) or not isinstance(storing.body, tirx.BufferStore):
        return False
    if not _is_vector(storing.writes[0], storing.iter_vars[-1].var):
        return False
    return all(_is_vector(region, spatial[-1]) for region in (*block.writes, *block.reads))


def sum_vectors(schedule: s_tir.Schedule, stage: Stage, store: SBlockRV, threads: int) -> None:
    """Bind a short reduction and the stage that stores its results, a vector a thread."""
    vectors = prod(stage.spatial_extents) // LANES
    # Bindings with a remainder are not affine, which the primitives below ask for.
    even = [each for each in range(1, threads + 1) if vectors % each == 0]
    thread, lane = _bind(schedule, store, max(even, key=lambda each: (each % WARP == 0, each)))
    schedule.compute_at(stage.block, thread, preserve_unit_loops=True)
    loops = schedule.get_loops(stage.block)
    reduced = loops[-len(stage.reduction_extents) :]
    summed = loops[-len(stage.reduction_extents) - 1]
    schedule.reorder(*reduced, summed)
    for loop in (summed, lane):
        schedule.vectorize(loop)
    for loop in reduced:
        schedule.unroll(loop)
    schedule.decompose_reduction(stage.block, reduced[0])


def _bind(schedule: s_tir.Schedule, block: SBlockRV, threads: int) -> tuple[Any, Any]:
    *outer, last = schedule.get_loops(block)
    vector, lane = schedule.split(last, [None, LANES])
    block_loop, thread = schedule.split(schedule.fuse(*outer, vector), [None, threads])
    schedule.bind(block_loop, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    return thread, lane


def _is_vector(region: Any, last: Any) -> bool:
    """Whether elements read or written lie side by side along an iterator, in whole vectors."""
    axes = list(zip(region.region, region.source.shape, strict=True))
    extents = [extent for axis, shape in axes for extent in (axis.extent, shape)]
    if str(region.source.dtype) not in DTYPES or not all(map(_is_number, extents)):
        return False
    while axes and int(axes[-1][1]) == 1:
        axes.pop()
    if not axes or int(axes[-1][1]) % LANES or not axes[-1][0].min.same_as(last):
        return False
    return all(int(axis.extent) == 1 for axis, _ in axes)


def _is_number(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm)


def _is_conditional(body: tirx.Stmt) -> bool:
    """Whether some elements are read only where a condition holds."""
    found: list[Any] = []
    for call in nodes_of(body, tvm.ir.Call):
        if call.op.same_as(_IF_THEN_ELSE):
            found.append(call)
    return bool(found)
