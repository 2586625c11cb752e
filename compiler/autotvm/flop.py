"""Counting the operations of computes, by which tuners compare configs."""

from __future__ import annotations

from typing import Any

from tvm import te

from ..errors import ScheduleError
from ..primfuncs.query import count_flops
from ..support.depth_first import depth_first


def compute_flop(sch: Any) -> int:
    """Operations of a TE schedule; ScheduleError if they can't be counted or it only moves data."""
    computed = depth_first(sch.outputs, lambda op: [tensor.op for tensor in op.input_tensors])
    inputs = [op.output(0) for op in computed if isinstance(op, te.PlaceholderOp)]
    outputs = [op.output(place) for op in sch.outputs for place in range(op.num_outputs)]
    count = count_flops(te.create_prim_func([*inputs, *outputs]))
    if not count:
        raise ScheduleError("there are no operations in this schedule that can be counted")
    return count
