"""Elementwise and injective functions on x86, and the loop nest of any injective stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.target import Target

from ..generic.inline import inline_stages
from ..generic.rewrite import merge_axes
from ..generic.stages import (
    Iter,
    Stage,
    accesses,
    branches_per_lane,
    contiguous_group,
    has_branches,
    lane_strides,
    stages,
    stride,
    work,
)
from .machine.cpu import Machine

# Kernels of less work than this run on one thread: waking the pool takes about 5 us, in which
# one core does this many element operations.
PARALLEL_WORK = 32 * 1024
# Iterations that a parallel loop should have, so that any usual number of threads shares it
# evenly; more loops are fused into it until it has them.
PARALLEL_ITERATIONS = 64
# The narrowest vectors that are made explicitly are half the widest; LLVM does better with
# whole vectors and a remainder than with quarters.
NARROWEST = 2
# Channels of a block, of which tensors of bytes have a quarter of a vector.
BLOCK = 16
# Rows of a transposition's tile: the floats of one cache line, unless the axis is not divisible.
MIN_ROWS, MAX_ROWS = 4, 16


class Injective(s_tir.dlight.ScheduleRule):
    """Schedule functions whose stages are all injective: elementwise, reshape, concat, gather.

    parallel outer axes, fused
      remaining axes
        vectorized innermost axis, the longest run of axes that every access walks flat
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        every = stages(sch)
        if not every or any(stage.opaque or stage.is_reduction for stage in every):
            return None
        inline_stages(sch)
        sch = _merged(sch)
        machine = Machine.from_target(target)
        for stage in stages(sch):
            schedule_nest(sch, stage, machine, parallel=work([stage]) >= PARALLEL_WORK)
        return sch


def _merged(sch: s_tir.Schedule) -> s_tir.Schedule:
    """Merge the axes that each stage can iterate as one flat axis."""
    func = sch.mod["main"]
    for name in [stage.name for stage in stages(sch)]:
        stage = next(found for found in stages(sch) if found.name == name)
        func = merge_axes(func, stage, contiguous_group(stage, stage.iters))
        sch = s_tir.Schedule(func, error_render_level="fast")
    return sch


def schedule_nest(sch: s_tir.Schedule, stage: Stage, machine: Machine, parallel: bool) -> None:
    """Schedule the root-level nest of one injective stage."""
    loops = sch.get_loops(stage.rv)
    outer = vectorize_inner(sch, stage, list(zip(stage.iters, loops)), machine)
    if parallel:
        parallelize(sch, outer)


def parallelize(sch: s_tir.Schedule, loops: Sequence[Any]) -> list[Any]:
    """Fuse leading loops for all threads and run them in parallel; return the resulting loops."""
    count, extent = 0, 1
    for loop in loops:
        if extent >= PARALLEL_ITERATIONS:
            break
        count, extent = count + 1, extent * int(sch.get(loop).extent)
    if extent == 1:
        return list(loops)
    fused = sch.fuse(*loops[:count]) if count > 1 else loops[0]
    sch.parallel(fused)
    return [fused, *loops[count:]]


def vectorize_inner(
    sch: s_tir.Schedule, stage: Stage, nest: Sequence[tuple[Iter, Any]], machine: Machine
) -> list[Any]:
    """Vectorize the innermost contiguous axes of an injective nest.

    Where no vector width divides the axes, the innermost loop stays plain: its accesses are
    contiguous, and LLVM's loop vectorizer makes the vector body and the remainder.

    `nest`: the iterators of `stage` that still have loops of their full extent, outermost first,
    perfectly nested. Returns the loops around the vector, outermost first; at least one.
    """
    loops = [loop for _, loop in nest]
    group = contiguous_group(stage, [it for it, _ in nest])
    if not group:
        return loops
    if not _fuses_cleanly(stage, group, machine):
        group = group[-1:]
    members = [index for index, (it, _) in enumerate(nest) if it in group]
    first, last = members[0], members[-1]
    inner = loops[first]
    if last > first:
        inner = sch.fuse(*loops[first : last + 1])
    tile = _transposed_iter(stage, nest, group)
    lanes = _vector_lanes(stage, group, machine)
    if not lanes:
        return [*loops[:first], inner]
    chunk, lane = sch.split(inner, [None, lanes])
    sch.vectorize(lane)
    if last + 1 < len(loops):  # unit loops
        sch.reorder(*loops[last + 1 :], lane)
    outer = [*loops[:first], chunk]
    return outer if tile is None else _tile(sch, outer, tile, lane, nest[tile][0].extent)


def _vector_lanes(stage: Stage, group: Sequence[Iter], machine: Machine) -> int:
    """Lanes that divide the axes and load whole vectors; 0 if there are none."""
    extent = 1
    for it in group:
        extent *= it.extent
    innermost = group[-1]
    most = min(
        machine.lanes(access.buffer.dtype)
        for access in accesses(stage)
        if access.is_store or stride(access, innermost.var) != 0
    )
    widths = [most, most // NARROWEST]
    if widths[-1] > BLOCK and has_branches(stage):  # else of which each element takes one
        widths.append(BLOCK)
    candidates = [
        lanes
        for lanes in widths
        if lanes > 1 and extent % lanes == 0 and _keeps_branches_out(stage, group, lanes)
    ]
    if len(group) > 1 or not candidates:
        return candidates[0] if candidates else 0
    # Index arithmetic, as a reshape leaves it, may be whole vectors only at a smaller width.
    contiguous = [
        lanes
        for lanes in candidates
        if all(step in (0, 1) for step in lane_strides(stage, innermost, lanes))
    ]
    return (contiguous or candidates)[0]


def _fuses_cleanly(stage: Stage, group: Sequence[Iter], machine: Machine) -> bool:
    """Whether fused vectors never straddle two rows, where TVM would compute a vector of indices.

    `merge_axes` has avoided that wherever the buffers are parameters.
    """
    return group[-1].extent % max(_vector_lanes(stage, group, machine), 1) == 0


def _keeps_branches_out(stage: Stage, group: Sequence[Iter], lanes: int) -> bool:
    return len(group) > 1 or not branches_per_lane(stage, group[0], lanes)


def _transposed_iter(
    stage: Stage, nest: Sequence[tuple[Iter, Any]], group: Sequence[Iter]
) -> int | None:
    """Position in `nest` of the axis that a load walks contiguously while the store doesn't."""
    for number, access in enumerate(accesses(stage)):
        if access.is_store or stride(access, group[-1].var) in (0, 1):
            continue
        for index, (it, _) in enumerate(nest):
            rows = _tile_rows(it.extent)
            if it not in group and rows >= MIN_ROWS and lane_strides(stage, it, rows)[number] == 1:
                return index
    return None


def _tile_rows(extent: int) -> int:
    return next(rows for rows in range(MAX_ROWS, 0, -1) if extent % rows == 0)


def _tile(
    sch: s_tir.Schedule, outer: list[Any], position: int, lane: Any, extent: int
) -> list[Any]:
    """Walk a transposition in tiles, so that each cache line loaded is used up while in L1."""
    tiles, row = sch.split(outer[position], [None, _tile_rows(extent)])
    outer = [*outer[:position], tiles, *outer[position + 1 :]]
    sch.reorder(*outer, row, lane)
    sch.unroll(row)
    return outer
