"""Pooling along the contiguous axis (NCHW layouts) on x86.

Pooling of a blocked or channels-last layout has its vector lanes outside of the window and is
scheduled like any reduction (`row_ops`), with the padding inlined: the condition is the same
for all lanes. Here the lanes are pixels, for which the padding differs, so that padded rows are
copied first.
"""

from __future__ import annotations

import itertools

from tvm import s_tir, tirx
from tvm.target import Target

from ...generic.inline import inline_stages
from ...generic.stages import Stage, accesses, has_branches, stages, uses, work
from ..injective import PARALLEL_WORK
from ..machine.cpu import Machine
from .reduction import by_kind, moving, schedule_scalar, slides
from .row_ops import schedule_injective


class Pooling(s_tir.dlight.ScheduleRule):
    """Schedule functions with one reduction over a window of the contiguous axis.

    parallel n, c, oh
      copy the padded input rows of this window
      ow                           LLVM vectorizes it
        unrolled kh, kw
      epilogue of the row          vectorized
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        every = stages(sch)
        if any(found.opaque for found in every):
            return None
        reductions = [found for found in every if found.is_reduction]
        if len(reductions) != 1 or not (slides(reductions[0]) and _is_window(reductions[0])):
            return None
        inline_stages(sch, keep=has_branches)
        every = stages(sch)
        output = every[-1]
        names = [found.name for found in every]
        position = names.index(reductions[0].name)
        if position < len(every) - 2 or not _is_chain(every[: position + 1]):
            return None

        spatial = by_kind(sch, output.rv, 0)[0]
        if len(spatial) < 2:
            return None
        row = sch.fuse(*spatial[:-1])
        if work(every) >= PARALLEL_WORK:
            sch.parallel(row)
        for stage in reversed(every[:-1]):
            sch.compute_at(stage.rv, row, preserve_unit_loops=True)
        machine = Machine.from_target(target)
        for stage in every:
            if stage.is_reduction:
                schedule_scalar(sch, stage.rv, 1)
            else:
                schedule_injective(sch, stage, machine)
        return sch


def _is_window(stage: Stage) -> bool:
    """Whether every reduction axis slides along an output axis: no channels are summed."""
    spatial = moving(stage, "S")
    indices = [index for access in accesses(stage) for index in access.indices]
    return all(
        any(uses(index, it.var) and any(uses(index, o.var) for o in spatial) for index in indices)
        for it in moving(stage, "R")
    )


def _is_chain(every: list[Stage]) -> bool:
    """Whether each stage reads the one before it."""
    return all(
        any(access.buffer.same_as(before.outputs[0]) for access in accesses(stage))
        for before, stage in itertools.pairwise(every)
    )
