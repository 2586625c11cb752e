"""Functions that work row by row on x86: softmax, normalizations, and every single reduction.

All stages of one row are computed together, so that the row stays in L1:

    parallel rows
      partial results of the first reduction     vectorized along the row
      first reduction
      elementwise stage                          vectorized along the row
      ...
      output of the row                          vectorized along the row

Where the contiguous axis is not reduced (the mean over H and W of a blocked layout, a softmax over
channels) a row is a piece of that axis, and its elements are the vector lanes of every stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.target import Target

from ...generic.inline import inline_output_copy, inline_stages
from ...generic.rewrite import merge_axes, multiply_by_reciprocals
from ...generic.stages import Iter, Stage, contiguous_group, stages, work
from ...tir_visit import nodes_of
from ..injective import NARROWEST, PARALLEL_ITERATIONS, PARALLEL_WORK, vectorize_inner
from ..machine.cpu import Machine
from .reduction import (
    Cut,
    by_kind,
    cut_reductions,
    loops_of,
    moving,
    partial_results,
    schedule_partial,
    schedule_scalar,
    slides,
    slides_along,
    vectorize_along,
    walks,
)

# A row that is a piece of the contiguous axis takes up to this many vectors of it.
MAX_ROW_VECTORS = 4
# Without a vector width that divides the contiguous axis, LLVM vectorizes pieces up to this size.
MAX_PLAIN_PIECE = 256
# Functions with fewer rows than this, but much work, are better parallelized stage by stage.
FEW_ROWS = 8
MUCH_WORK = 16 * PARALLEL_WORK


@dataclass(frozen=True)
class Rows:
    """The axes that all stages share."""

    axes: list[Iter]  # iterators of the output stage, outermost first
    # The contiguous one among them if some reduction walks it with its vector lanes
    piece: Iter | None
    # Stage name to {position of the stage's iterator: iterator of the output stage}
    maps: dict[str, dict[int, Iter]]


class RowOps(s_tir.dlight.ScheduleRule):
    """Schedule functions with reductions whose stages all have some axes, the rows, in common."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        every = stages(sch)
        if any(stage.opaque for stage in every) or not any(s.is_reduction for s in every):
            return None
        if [s for s in every[:-1] if not sch.get_consumers(s.rv)]:  # a second output
            return None
        if any(slides(s) for s in every if s.is_reduction):  # see StageByStage
            return None
        sch = inline_output_copy(sch)
        inline_stages(sch)
        machine = Machine.from_target(target)
        func = multiply_by_reciprocals(sch.mod["main"], stages(sch))
        func, cuts = cut_reductions(func, machine)
        rows = find_rows(stages(s_tir.Schedule(func)), cuts)
        if rows is None or _better_by_stage(every, rows):
            return None
        sch = s_tir.Schedule(_merge_rows_inside(func, cuts), error_render_level="fast")
        _schedule(sch, cuts, machine)
        return sch


def find_rows(every: list[Stage], cuts: list[Cut]) -> Rows | None:
    """The axes of the last stage along which every other stage is computed element by element.

    There may be none: then the whole function is one row. None if a stage other than the last
    is an output.
    """
    output = every[-1]
    maps = {output.name: {i: it for i, it in enumerate(output.iters) if _is_axis(it)}}
    for position in reversed(range(len(every) - 1)):
        mapping = _map_to_output(every[position], every[position + 1 :], maps)
        if mapping is None:
            return None
        maps[every[position].name] = mapping
    shared = [
        it
        for it in maps[output.name].values()
        if all(any(axis is it for axis in mapping.values()) for mapping in maps.values())
    ]
    cut = {name for c in cuts for name in (c.stage, c.reduction)}
    return Rows(shared, _piece(every, shared, maps, cut), maps)


def _is_axis(it: Iter) -> bool:
    return it.kind == "S" and it.extent > 1


def _map_to_output(
    stage: Stage, later: list[Stage], maps: dict[str, dict[int, Iter]]
) -> dict[int, Iter] | None:
    """Map iterators of `stage` to the output axis that all readers agree on; None if unused."""
    dimensions = _stored_iters(stage)
    agreed: dict[int, Iter] | None = None
    for reader in later:
        axes = {reader.iters[i].var: axis for i, axis in maps[reader.name].items()}
        for indices in _reads_of(reader, stage.outputs):
            found: dict[int, Iter] = {}
            for position, index in zip(dimensions, indices):
                for var, axis in axes.items():
                    if position is not None and index.same_as(var):
                        found[position] = axis
            if agreed is None:
                agreed = found
            agreed = {p: axis for p, axis in agreed.items() if found.get(p) is axis}
    return agreed


def _stored_iters(stage: Stage) -> list[int | None]:
    """Return the iterator that indexes each dimension of the buffer that the stage stores."""
    positions: list[int | None] = []
    for dimension in stage.block.writes[0].region:
        matches = [i for i, it in enumerate(stage.iters) if dimension.min.same_as(it.var)]
        positions.append(matches[0] if matches else None)
    return positions


def _reads_of(stage: Stage, buffers: list[Any]) -> list[list[Any]]:
    return [
        list(node.indices)
        for node in nodes_of(stage.block.body, TensorLoad)
        if any(node.source.same_as(buffer) for buffer in buffers)
    ]


def _piece(
    every: list[Stage], shared: list[Iter], maps: dict[str, dict[int, Iter]], cut: set[str]
) -> Iter | None:
    axes = moving(every[-1], "S")
    if not axes or axes[-1] not in shared:
        return None
    last = axes[-1]
    for stage in every:
        if not stage.is_reduction or stage.name in cut:
            continue
        for position, axis in maps[stage.name].items():
            if axis is last and walks(stage, stage.iters[position]):
                return last
    return None


def _better_by_stage(every: list[Stage], rows: Rows) -> bool:
    count = 1
    for axis in rows.axes:
        count *= axis.extent
    return count < FEW_ROWS and work(every) >= MUCH_WORK


def _merge_rows_inside(func: tirx.PrimFunc, cuts: list[Cut]) -> tirx.PrimFunc:
    """Merge what axes the injective stages can walk flat within one row."""
    for name in [stage.name for stage in stages(s_tir.Schedule(func))]:
        every = stages(s_tir.Schedule(func))
        stage = next(found for found in every if found.name == name)
        rows = find_rows(every, cuts)
        if stage.is_reduction or rows is None:
            continue
        outside = [i for i, axis in rows.maps[name].items() if axis in rows.axes]
        inside = [it for i, it in enumerate(stage.iters) if i not in outside]
        func = merge_axes(func, stage, contiguous_group(stage, inside))
    return func


def _schedule(sch: s_tir.Schedule, cuts: list[Cut], machine: Machine) -> None:
    every = stages(sch)
    rows = find_rows(every, cuts)
    assert rows is not None
    partials = {cut.stage: partial_results(sch, cut) for cut in cuts}

    loops, lanes = _row_loops(sch, every, rows, machine)
    if work(every) >= PARALLEL_WORK and int(sch.get(loops[0]).extent) > 1:
        sch.parallel(loops[0])
    blocks = []
    for stage in every:
        blocks += [*partials.get(stage.name, []), stage.rv]
    for block in reversed(blocks[:-1]):
        sch.compute_at(block, loops[-1], preserve_unit_loops=True)

    depth = len(loops)
    for stage in every:
        for block in partials.get(stage.name, []):
            schedule_partial(sch, block, depth)
        if stage.is_reduction:
            _schedule_reduction(sch, stage, rows, lanes, depth)
        else:
            schedule_injective(sch, stage, machine, depth)


def _row_loops(
    sch: s_tir.Schedule, every: list[Stage], rows: Rows, machine: Machine
) -> tuple[list[Any], int]:
    """The loops over the rows, and the lanes of a row that is a piece of the last axis.

    There is one fused loop; under it another one for the last axis that a window slides along, so
    that where padding is no concern, no index is asked for it. The lanes are 0 where rows are
    whole, and where no vector width divides the axis.
    """
    output = every[-1]
    spatial, reduced = by_kind(sch, output.rv, 0)
    iters = [it for it in output.iters if it.kind == "S"]
    outside = [loop for it, loop in zip(iters, spatial) if it in rows.axes and it is not rows.piece]
    inside = [loop for it, loop in zip(iters, spatial) if it not in rows.axes]
    lanes = 0
    if rows.piece is not None:
        size, lanes = _piece_size(rows, output, machine)
        piece = spatial[iters.index(rows.piece)]
        pieces, piece = sch.split(piece, [None, size])
        outside.append(pieces)
        inside.append(piece)
    if not outside:
        outside.append(sch.add_unit_loop(sch.get_loops(output.rv)[0]))
    sch.reorder(*outside, *inside, *reduced)
    along = _window_axis(every, rows)
    if along is None:
        return [sch.fuse(*outside) if len(outside) > 1 else outside[0]], lanes
    position = outside.index(spatial[iters.index(along)])
    row = sch.fuse(*outside[:position]) if position > 1 else outside[0]
    sch.annotate(outside[position], "pragma_loop_partition_hint", 1)
    return [row, *outside[position:]], lanes


def _window_axis(every: list[Stage], rows: Rows) -> Iter | None:
    """The last row axis that a window slides along; None if threads would get too few rows."""
    for stage in every:
        if not stage.is_reduction:
            continue
        slid = [
            axis
            for position, axis in rows.maps[stage.name].items()
            if axis in rows.axes
            and axis is not rows.piece
            and slides_along(stage, stage.iters[position])
        ]
        if slid:
            last = max(slid, key=rows.axes.index)
            before = rows.axes[: rows.axes.index(last)]
            others = math.prod(axis.extent for axis in before)
            return last if others >= PARALLEL_ITERATIONS else None
    return None


def _piece_size(rows: Rows, output: Stage, machine: Machine) -> tuple[int, int]:
    assert rows.piece is not None
    extent = rows.piece.extent
    most = machine.lanes(output.outputs[0].dtype)
    # Blocks of channels are as wide as vectors of floats: bytes fill a quarter, and LLVM would
    # compute a window of them one by one.
    for lanes in (most, most // NARROWEST, machine.lanes("float32")):
        if lanes > 1 and extent % lanes == 0:
            vectors = next(n for n in range(MAX_ROW_VECTORS, 0, -1) if extent % (lanes * n) == 0)
            return lanes * vectors, lanes
    return next(size for size in range(MAX_PLAIN_PIECE, 0, -1) if extent % size == 0), 0


def _schedule_reduction(
    sch: s_tir.Schedule, stage: Stage, rows: Rows, lanes: int, depth: int
) -> None:
    piece = [i for i, axis in rows.maps[stage.name].items() if axis is rows.piece]
    if lanes and piece:
        vectorize_along(sch, stage.rv, depth, stage.iters[piece[0]].var)
    else:
        schedule_scalar(sch, stage.rv, depth)


def schedule_injective(sch: s_tir.Schedule, stage: Stage, machine: Machine, depth: int = 1) -> None:
    """Vectorize what an injective stage computes for one row, below some outer loops."""
    nest = []
    for iv, loop in loops_of(sch, stage.rv, depth):
        extent = int(sch.get(loop).extent)
        if iv is not None and extent > 1:
            nest.append((Iter("S", extent, iv.var), loop))
    vectorize_inner(sch, stage, nest, machine)
