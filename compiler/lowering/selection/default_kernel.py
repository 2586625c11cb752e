"""Single kernels of the schedule library: without records, or with a given config."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from schedules.strategy import Query

from ...records.auto_scheduler import dispatcher as auto_scheduler
from ..pipeline import scheduled

# Layout conversions are not counted: a network converts once, at its edges.
_LAYOUT_OPERATORS = frozenset(
    {"_block", "layout_unblock", "layout_transform", "reshape", "transpose", "nn.pad"}
)


@dataclass(frozen=True)
class LibraryKernel:
    func: PrimFunc  # scheduled
    calls: int
    source: str  # of its schedule, as the build's report names it


def library_kernels(
    mod: tvm.IRModule, target: Target, query: Query | None = None
) -> list[LibraryKernel]:
    """The scheduled kernels of a module whose main is one kernel's operators, at opt_level 3.

    Kernels that only change layouts are left out. `query` chooses configs; default: no records.
    """
    with auto_scheduler.FallbackContext(), tvm.transform.PassContext(opt_level=3):
        state = scheduled(mod, target, query)
    return [
        LibraryKernel(state.mod[kernel.name], kernel.calls, kernel.source)
        for kernel in state.report.kernels
        if not _LAYOUT_OPERATORS.issuperset(kernel.operators)
    ]
