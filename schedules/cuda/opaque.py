"""The last rule: blocks that can't be split among threads run in one thread, or as they are.

Sorts, scans and the like arrive as opaque blocks. Those written for a device launch their own
threads and are left alone; any other block gets a kernel with a single thread, which is slow but
right. A function with a call to a host library has no such kernel, and none is made.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule
from tvm.target import Target

from .blocks import stages
from .verify import has_thread_bindings


class SingleThread(ScheduleRule):
    """Any function of blocks."""

    def apply(self, func: tirx.PrimFunc, target: Target, _: bool) -> s_tir.Schedule | None:
        """Schedule `func`, one kernel for each block outside of threads."""
        schedule = s_tir.Schedule(func)
        if has_thread_bindings(func):
            return schedule
        for stage in stages(schedule):
            if stage.is_bound or has_thread_bindings(func.with_body(schedule.get(stage.block))):
                continue
            outer = schedule.add_unit_loop(
                schedule.get_loops(stage.block)[0]
                if schedule.get_loops(stage.block)
                else stage.block
            )
            block_loop, thread_loop = schedule.split(outer, [None, 1])
            schedule.bind(block_loop, "blockIdx.x")
            schedule.bind(thread_loop, "threadIdx.x")
        return schedule
