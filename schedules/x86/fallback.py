"""The last rules on x86: they take what no other rule does, so that nothing stays unscheduled."""

from __future__ import annotations

import logging
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.target import Target

from ..generic.inline import inline_stages
from ..generic.rewrite import is_simple_reduction, merge_axes, separate_reductions
from ..generic.stages import Stage, contiguous_group, has_branches, stages, work
from ..tir_visit import nodes_of
from .injective import PARALLEL_ITERATIONS, PARALLEL_WORK, parallelize, schedule_nest
from .machine.cpu import Machine
from .reduction.reduction import (
    Cut,
    by_kind,
    cut_inner_axis,
    find,
    loops_of,
    moving,
    partial_results,
    reduce_lanes,
    rfactor,
    schedule_partial,
    schedule_scalar,
    slides,
    walks,
)

# Reductions with fewer results than this reduce chunks of their axis in parallel.
FEW_RESULTS = 16
MOST_VECTORS = 4

_LOG = logging.getLogger("baton.schedules")


class StageByStage(s_tir.dlight.ScheduleRule):
    """Schedule any function with root-level blocks, with one loop nest per stage.

        parallel spatial axes, fused
          partial results          vectorized along the contiguous axis
          the stage

    An injective stage is scheduled like an injective function; padding before a window
    along the contiguous axis is copied, because it would differ between the lanes. A reduction
    with fewer results than threads first reduces a few dozen chunks of its axis in parallel.
    Opaque blocks (sort, scan, scatter) stay serial loops, except for the initialization of a
    reduction over a dynamic extent, which may be 0.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        every = stages(sch)
        if not every:
            return None
        windows = any(stage.is_reduction and slides(stage) for stage in every)
        inline_stages(sch, keep=lambda stage: windows and has_branches(stage))
        machine = Machine.from_target(target)
        for stage in stages(sch):
            if stage.is_reduction:
                sch = _rescheduled(separate_reductions(sch.mod["main"], stage))
        for name in [stage.name for stage in stages(sch)]:
            try:
                sch = _schedule_stage(sch, name, machine)
            except s_tir.ScheduleError as error:
                # What was done to the stage so far is correct: a primitive that fails changes
                # nothing.
                _LOG.warning("stage %s stays partly scheduled: %s", name, error)
        return sch


class Empty(s_tir.dlight.ScheduleRule):
    """Schedule functions with a stage that never runs, because a tensor has no elements.

    Its other stages stay serial loops; the sum over nothing is its initial value. Other rules
    inline an empty stage that is only read, as what a first step concatenates to an empty cache.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        if not _has_empty(sch):
            return None
        inline_stages(sch)
        if not _has_empty(sch):
            return None
        for stage in stages(sch):  # a reduction is initialized in its first step: there is none
            if stage.block.init is not None:
                sch.decompose_reduction(stage.rv, by_kind(sch, stage.rv, 0)[1][0])
        return sch


def _has_empty(sch: s_tir.Schedule) -> bool:
    return any(stage.volume == 0 for stage in stages(sch))


class Opaque(s_tir.dlight.ScheduleRule):
    """Leave functions without blocks, such as TOPI's sort and scatter, serial."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        return None if stages(sch) else sch


def _schedule_stage(sch: s_tir.Schedule, name: str, machine: Machine) -> s_tir.Schedule:
    stage = find(sch, name)
    if stage.opaque:
        if stage.block.init is not None and not _reduce_vectors(sch, stage, machine):
            _, reduced = by_kind(sch, stage.rv, 0)
            sch.decompose_reduction(stage.rv, reduced[0])
        return sch
    parallel = work([stage]) >= PARALLEL_WORK
    if not stage.is_reduction:
        sch = _rescheduled(merge_axes(sch.mod["main"], stage, contiguous_group(stage, stage.iters)))
        schedule_nest(sch, find(sch, name), machine, parallel)
        return sch
    chunks = None
    if parallel and _volume(stage, "S") < FEW_RESULTS and is_simple_reduction(stage):
        chunks = _in_chunks(sch, stage)
    if chunks is not None:
        sch = _schedule_stage(sch, chunks, machine)
        schedule_scalar(sch, find(sch, name).rv, 0)
        return sch
    func, cut = cut_inner_axis(sch.mod["main"], name, machine)
    sch = _rescheduled(func)
    if cut is not None:
        _schedule_cut(sch, name, cut, parallel)
    else:
        _schedule_nest(sch, find(sch, name), machine, parallel)
    return sch


def _reduce_vectors(sch: s_tir.Schedule, stage: Stage, machine: Machine) -> bool:
    """Reduce dynamic extents in vectors along the last axis, where all accesses have it last."""
    pairs = [(iv, loop) for iv, loop in loops_of(sch, stage.rv, 0) if iv is not None]
    kept = [pair for pair in pairs if pair[0].iter_type == tirx.IterVar.DataPar]
    if not kept or not is_simple_reduction(stage) or has_branches(stage):
        return False
    iterator, last = kept[-1]
    lanes, extent = machine.lanes(stage.outputs[0].dtype), sch.get(last).extent
    if not isinstance(extent, tirx.IntImm) or int(extent) % lanes:
        return False

    def moves(part: Any) -> bool:
        return any(var.same_as(iterator.var) for var in nodes_of(part, tirx.Var))

    store = stage.block.body
    loads = [each.indices for each in nodes_of(store.value, TensorLoad)]
    for indices in [store.indices, *filter(moves, loads)]:
        *others, place = indices
        if not place.same_as(iterator.var) or any(map(moves, others)):
            return False
    # Several vectors: each pass over the rows reads whole cache lines.
    size = next(n * lanes for n in (MOST_VECTORS, 2, 1) if int(extent) % (n * lanes) == 0)
    _, lane = sch.split(last, [None, size])
    spatial, reduced = by_kind(sch, stage.rv, 0)
    sch.reorder(*spatial[:-1], *reduced, lane)
    sch.vectorize(lane)
    init = sch.decompose_reduction(stage.rv, reduced[0])
    sch.vectorize(sch.get_loops(init)[-1])
    return True


def _rescheduled(func: tirx.PrimFunc) -> s_tir.Schedule:
    return s_tir.Schedule(func, error_render_level="fast")


def _volume(stage: Stage, kind: str) -> int:
    volume = 1
    for it in moving(stage, kind):
        volume *= it.extent
    return volume


def _in_chunks(sch: s_tir.Schedule, stage: Stage) -> str | None:
    """Reduce chunks of the axis in a separate stage; return its name."""
    axis = max(moving(stage, "R"), key=lambda it: it.extent)
    loop = sch.get_loops(stage.rv)[stage.iters.index(axis)]
    chunks = next(n for n in range(PARALLEL_ITERATIONS, 0, -1) if axis.extent % n == 0)
    if chunks < FEW_RESULTS:
        return None
    chunk, _ = sch.split(loop, [chunks, None])
    partial = rfactor(sch, chunk, 0)
    return str(sch.get(partial).name_hint)


def _schedule_cut(sch: s_tir.Schedule, name: str, cut: Cut, parallel: bool) -> None:
    blocks = partial_results(sch, cut)
    output = find(sch, name).rv
    if cut.stage != name:
        blocks.append(find(sch, cut.stage).rv)
    spatial, reduced = by_kind(sch, output, 0)
    if len(spatial) > 1:
        row = sch.fuse(*spatial)
    else:
        row = spatial[0] if spatial else sch.add_unit_loop(reduced[0])
    if parallel and spatial:
        sch.parallel(row)
    for block in reversed(blocks):
        sch.compute_at(block, row, preserve_unit_loops=True)
    for block in blocks:
        if cut.stage != name and block is blocks[-1]:
            schedule_scalar(sch, block, 1)
        else:
            schedule_partial(sch, block, 1)
    schedule_scalar(sch, output, 1)


def _schedule_nest(sch: s_tir.Schedule, stage: Stage, machine: Machine, parallel: bool) -> None:
    """Without partial results: the last spatial axis innermost, if it is the contiguous one."""
    spatial, reduced = by_kind(sch, stage.rv, 0)
    last = moving(stage, "S")[-1:]
    lane = None
    vectors = False
    if last and walks(stage, last[0]):
        position = [it for it in stage.iters if it.kind == "S"].index(last[0])
        lane = spatial.pop(position)
        lanes = machine.lanes(stage.outputs[0].dtype)
        vectors = last[0].extent % lanes == 0
        if vectors:
            outer, lane = sch.split(lane, [None, lanes])
            spatial.append(outer)
        sch.reorder(*spatial, lane)
    if parallel:
        spatial = parallelize(sch, spatial)
    if lane is None:
        schedule_scalar(sch, stage.rv, 0)
    else:
        reduce_lanes(sch, stage.rv, spatial, reduced, lane, vectors)
