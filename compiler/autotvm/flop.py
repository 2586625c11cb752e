"""Counting the operations of computes, by which tuners compare configs."""

from __future__ import annotations

from typing import Any

from tvm import te

from ..errors import ScheduleError
from ..primfuncs.query import count_flops


def compute_flop(sch: Any) -> int:
    """Operations of a TE schedule; ScheduleError if they can't be counted or it only moves data."""
    outputs = [op.output(place) for op in sch.outputs for place in range(op.num_outputs)]
    count = count_flops(te.create_prim_func([*_inputs(outputs), *outputs]))
    if not count:
        raise ScheduleError("there are no operations in this schedule that can be counted")
    return count


def _inputs(tensors: list[Any]) -> list[Any]:
    """The placeholders that tensors are computed from, each once."""
    found: dict[Any, Any] = {}
    seen: set[Any] = set()
    left = list(tensors)
    while left:
        op = left.pop().op
        if op in seen:
            continue
        seen.add(op)
        if isinstance(op, te.PlaceholderOp):
            found[op] = op.output(0)
        left.extend(op.input_tensors)
    return list(found.values())
