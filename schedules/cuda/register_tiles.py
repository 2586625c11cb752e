"""Tiles of neighboring results per thread, for windows and for elementwise functions.

pools and depthwise convolutions, channels last    threads along the channels, a vector each;
                                                   tiles of rows and columns
the same, channels first                           threads along the columns; tiles of rows
elementwise functions                              a vector of neighbors for each thread

    patch[...] <- x[...]      what the results need, padding included, in registers
    acc[...] = reduce(patch)
    out[...] <- f(acc)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.schedule import SBlockRV
from tvm.target import Target

from ..tir_visit import nodes_of
from . import limits
from .blocks import inline_producers, stages
from .limits import WARP
from .stages import LONG_REDUCTION, Stages, fuse_consumers

THREADS = (128, 64, 32)
# H100, windows and elementwise kernels of 7 models, predicted times, 2026-11: 8 loses < 1 %
WARPS = 8
"""Warps for each multiprocessor that tiles leave at least."""
SIDES = (1, 2, 3, 4, 5, 7)
"""Results of a thread along an axis of an image."""
MAX_RESULTS = 8
"""Results, or vectors of them, of a thread."""
LANES = (2, 4, 8)
VECTOR_BYTES = 16
VECTOR_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int32")
MAX_REGISTERS = 128
"""Registers for patches and sums; with more, a multiprocessor would have too few threads."""

_IF_THEN_ELSE = tvm.ir.Op.get("prim.if_then_else")


class RegisterTiles(ScheduleRule):
    """The largest tiles that leave enough threads, or the schedule of `Stages`."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when a block is opaque."""
        plain = Stages().apply(func, target, tunable)
        found = stages(s_tir.Schedule(func))
        if plain is None or any(-1 in stage.extents or stage.is_bound for stage in found):
            return plain
        sms = limits.of(target).sms
        fewest = WARPS * WARP * sms
        try:
            enough = [each for each in _tiled(func, sms) if each[0] >= fewest]
        except s_tir.ScheduleError:
            return plain
        return min(enough, key=lambda each: each[:2], default=(0, 0, plain))[2]


class Windows(RegisterTiles):
    """Functions with one short reduction, as pooling and depthwise convolution have."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None if a reduction is long or not alone, or a block is opaque."""
        reductions = [stage for stage in stages(s_tir.Schedule(func)) if stage.is_reduction]
        if len(reductions) != 1 or prod(reductions[0].reduction_extents) >= LONG_REDUCTION:
            return None
        return super().apply(func, target, tunable)


def _tiled(func: tirx.PrimFunc, sms: int) -> Iterator[tuple[int, int, s_tir.Schedule]]:
    """Schedules of a function with one reduction, or one stage, whose tiles fit into registers.

    Yields also the number of threads, and the registers of a thread for its patches and sums.
    """
    schedule = s_tir.Schedule(func)
    normalize_prim_func(schedule)
    reductions = [stage.block for stage in stages(schedule) if stage.is_reduction]
    if not reductions:
        inline_producers(schedule)
    mains = reductions or [stage.block for stage in stages(schedule)]
    if len(mains) != 1 or _reads_some(schedule.get(mains[0]).body):
        return
    main = mains[0]
    kept = {schedule.get(block).name_hint for block in (main, *schedule.get_producers(main))}
    for stage in stages(schedule):
        if stage.is_reduction:
            break
        if schedule.get(stage.block).name_hint not in kept:
            schedule.compute_inline(stage.block)
    store = schedule.cache_write(main, 0, "local")
    fuse_consumers(schedule, store)
    patches = list(schedule.get_producers(main))
    for patch in patches:
        schedule.set_scope(patch, 0, "local")
    for at, read in enumerate(schedule.get(main).reads):
        if read.source.scope() != "local":
            patches.append(schedule.cache_read(main, at, "local"))
    too_large: list[tuple[int, ...]] = []
    for tile in _tiles(schedule, main, store):
        if any(all(map(int.__le__, each, tile)) for each in too_large):
            continue
        copy = schedule.copy()
        threads, registers = _place(copy, tile, patches, main, store, sms)
        if registers <= MAX_REGISTERS:
            yield threads, registers, copy
        else:
            too_large.append(tile)


def _reads_some(body: tirx.Stmt) -> bool:
    """Whether conditions or values in memory decide which elements are read."""
    calls, loads = nodes_of(body, tvm.ir.Call), nodes_of(body, tvm.ir.TensorLoad)
    return any(call.op.same_as(_IF_THEN_ELSE) for call in calls) or any(
        nodes_of(index, tvm.ir.TensorLoad) for load in loads for index in load.indices
    )


def _tiles(schedule: s_tir.Schedule, main: SBlockRV, store: SBlockRV) -> Iterator[tuple[int, ...]]:
    """Numbers of results of a thread along each axis of the output."""
    block, last = schedule.get(main), schedule.get(store)
    extents = [int(loop.extent) for loop in map(schedule.get, schedule.get_loops(store))]
    written = [axis.min for axis in block.writes[0].region]
    reduced = {v.var for v in block.iter_vars if v.iter_type == tirx.IterVar.CommReduce}
    indices = [set(nodes_of(axis.min, tirx.Var)) for read in block.reads for axis in read.region]
    windowed = set().union(*(found for found in indices if found & reduced))
    image = [at for at, axis in enumerate(written) if axis in windowed and extents[at] > 1]
    innermost = max((at for at, extent in enumerate(extents) if extent > 1), default=-1)
    if innermost < 0 or not len(written) == len(extents) == len(last.iter_vars):
        return
    dtypes = {str(each.source.dtype) for each in (*block.reads, *last.writes)}
    most = VECTOR_BYTES // max(tvm.DataType(dtype).itemsize for dtype in dtypes)
    if innermost in image or not dtypes <= {*VECTOR_DTYPES}:
        most = 1
    lanes = [n for n in LANES if n <= most and extents[innermost] % n == 0] or [1]
    sides = {at: [side for side in SIDES if extents[at] % side == 0] for at in image}
    choices = [sides.get(at, [1]) for at in range(len(extents))]
    choices[innermost] = lanes
    for tile in product(*choices):
        if 1 < prod(tile) <= MAX_RESULTS * tile[innermost]:
            yield tile


def _place(
    schedule: s_tir.Schedule,
    tile: tuple[int, ...],
    patches: list[SBlockRV],
    main: SBlockRV,
    store: SBlockRV,
    sms: int,
) -> tuple[int, int]:
    """Give each thread a tile; the threads, and the registers for patches and sums of each."""
    split = [
        schedule.split(loop, [None, size])
        for loop, size in zip(schedule.get_loops(store), tile, strict=True)
    ]
    schedule.reorder(*(outer for outer, _ in split), *(inner for _, inner in split))
    fused = schedule.fuse(*(outer for outer, _ in split))
    tiles = int(schedule.get(fused).extent)
    threads = next((each for each in THREADS if tiles >= 2 * each * sms), THREADS[-1])
    block_loop, thread = schedule.split(fused, [None, threads])
    schedule.bind(block_loop, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    registers, lanes = 0, tile[-1]
    for block in (main, *patches, store):
        if block is not store:
            schedule.compute_at(block, thread, preserve_unit_loops=True)
        loops = schedule.get_loops(block)[2:]
        extents = [schedule.get(loop).extent for loop in loops]
        if not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return 0, MAX_REGISTERS + 1  # a tile of a reshape reads no box of its operand
        trips = list(map(int, extents))
        results = prod(tile) if block is main else prod(trips)
        dtype = str(schedule.get(block).writes[0].source.dtype)
        registers += results * tvm.DataType(dtype).itemsize // 4
        last = max((at for at, trip in enumerate(trips) if trip > 1), default=0)
        if block is not main and 1 < lanes == trips[last]:
            schedule.vectorize(loops.pop(last))
        for loop in loops:
            schedule.unroll(loop)
    return tiles, registers
