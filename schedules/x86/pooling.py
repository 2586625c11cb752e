"""Pooling along the contiguous axis (NCHW layouts) on x86.

Pooling of a blocked or channels-last layout has its vector lanes outside of the window and is
scheduled like any reduction (`row_ops`), with the padding inlined: the condition is the same
for all lanes. Here the lanes are pixels, for which the padding differs, so that padded rows are
copied first.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, Op
from tvm.target import Target

from ..generic.inline import inline_stages
from ..generic.stages import Stage, accesses, stages, uses, work
from .injective import PARALLEL_WORK
from .machine import Machine
from .reduction import by_kind, moving, schedule_scalar
from .row_ops import schedule_injective


class Pooling(s_tir.dlight.ScheduleRule):
    """Takes functions with one reduction over a window of the contiguous axis.

        parallel n, c, oh
          copy the padded input rows of this window
          ow                           LLVM vectorizes it
            unrolled kh, kw
          epilogue of the row          vectorized
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func, error_render_level="fast")
        every = stages(sch)
        if any(stage.opaque for stage in every):
            return None
        reductions = [stage for stage in every if stage.is_reduction]
        if len(reductions) != 1 or not _slides_along_last_axis(reductions[0]):
            return None
        inline_stages(sch, keep=_is_padding)
        every = stages(sch)
        output = every[-1]
        names = [stage.name for stage in every]
        position = names.index(reductions[0].name)
        if position < len(every) - 2 or not _is_chain(every[: position + 1]):
            return None

        spatial, _ = by_kind(sch, output.rv, 0)
        row = sch.fuse(*spatial[:-1])
        if work(every) >= PARALLEL_WORK:
            sch.parallel(row)
        for stage in reversed(every[:-1]):
            sch.compute_at(stage.rv, row, preserve_unit_loops=True)
        for stage in every:
            if stage.is_reduction:
                schedule_scalar(sch, stage.rv, 1)
            else:
                schedule_injective(sch, stage, Machine.from_target(target))
        return sch


def _slides_along_last_axis(stage: Stage) -> bool:
    """Whether an index of the load depends on the last spatial axis and on a reduction axis."""
    spatial, reduced = moving(stage, "S"), moving(stage, "R")
    if not spatial or stage.iters[[it.kind for it in stage.iters].index("R") - 1] != spatial[-1]:
        return False
    return any(
        uses(index, spatial[-1].var) and uses(index, it.var)
        for access in accesses(stage)
        if not access.is_store
        for index in access.indices
        for it in reduced
    )


def _is_padding(stage: Stage) -> bool:
    found = False

    def call(node: Call) -> None:
        nonlocal found
        found = found or (isinstance(node.op, Op) and node.op.name == "tirx.if_then_else")

    tvm_ffi.structural_walk(stage.block.body, (Call, call))
    return found


def _is_chain(every: list[Stage]) -> bool:
    """Whether each stage reads the one before it."""
    return all(
        any(access.buffer.same_as(before.outputs[0]) for access in accesses(stage))
        for before, stage in zip(every, every[1:])
    )
