"""Matrix products by TVM's rule, on tensor cores where there are any for the dtypes."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule, gpu
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from ...tensor_intrinsics import import_on_demand
from ..limits import plain

_ORDER, _STAGE = "software_pipeline_order", "software_pipeline_stage"
# Both operands go to registers, then the product of the tiles before runs, and then they go on to
# shared memory. The statements are: a to registers, a to shared memory, the same of b, product.
_FLAT = {_ORDER: [0, 3, 1, 4, 2], _STAGE: [0, 0, 0, 0, 1]}


class Products(ScheduleRule):
    """`dlight.gpu.Matmul`, with its pipeline of int8 products mended.

    That asks for a pipeline inside of the pipeline over a loop of one iteration, which TVM 0.27's
    pass fails on. Without it the outer pipeline has five statements instead of seven.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        """Schedule `func`; None when it is not a matrix product."""
        import_on_demand()
        schedule = gpu.Matmul().apply(func, plain(target), tunable)
        if schedule is not None:
            for block in _blocks(schedule, schedule.get_sblock("root")):
                _flatten_pipeline(schedule, schedule.get_loops(block))
        return schedule


def _blocks(schedule: s_tir.Schedule, block: SBlockRV) -> list[SBlockRV]:
    """Every block below `block`."""
    found = []
    for child in schedule.get_child_blocks(block):
        found += [child, *_blocks(schedule, child)]
    return found


def _flatten_pipeline(schedule: s_tir.Schedule, loops: list[LoopRV]) -> None:
    pipelined = [loop for loop in loops if _ORDER in schedule.get(loop).annotations]
    if len(pipelined) != 2 or not _is_one(schedule.get(pipelined[1]).extent):
        return
    for loop in pipelined:
        for name in (_ORDER, _STAGE):
            schedule.unannotate(loop, name)
    for name, values in _FLAT.items():
        schedule.annotate(pipelined[0], name, values)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1
