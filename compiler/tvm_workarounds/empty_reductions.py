"""Initialize sums outside of the loops that add to them.

    for k in range(n):                         y[0] = 0
        if k == 0: y[0] = 0                    for k in range(n):
        y[0] += x[k]                               y[0] += x[k]

TVM 0.27 makes the left form of kernels without a schedule, which leaves the result undefined where
n is 0.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from compiler.primfuncs.query import map_primfuncs
from schedules.tir_visit import nodes_of

_REDUCTION = 2  # tirx.IterVar.CommReduce


PIPELINE = "baton.initialize_before_loops"
"""Name of TVM's standard pipeline for kernels, which treats possibly empty reductions first."""


def _pipeline() -> tuple[Any, Any, Any]:
    standard, *ends = tirx.get_tir_pipeline("default")

    @tvm.transform.module_pass(opt_level=0)
    def initialize_before_loops(mod: tvm.IRModule, _: Any) -> tvm.IRModule:
        return standard(map_primfuncs(mod, _decomposed))

    return (initialize_before_loops, *ends)


tirx.register_tir_pipeline(PIPELINE, _pipeline)


def _decomposed(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Move initial values before the loops of reductions whose extents may be 0."""
    schedule = None
    for block in nodes_of(function.body, s_tir.SBlock):
        if block.init is None:
            continue
        reduced = [
            index for index, var in enumerate(block.iter_vars) if int(var.iter_type) == _REDUCTION
        ]
        extents = [block.iter_vars[index].dom.extent for index in reduced]
        if all(isinstance(extent, tirx.IntImm) and extent.value > 0 for extent in extents):
            continue
        schedule = schedule or s_tir.Schedule(function)
        stage = schedule.get_sblock(block.name_hint)
        loops = schedule.get_loops(stage)
        if len(loops) == len(block.iter_vars):  # else a GPU's threads share the reduction
            schedule.decompose_reduction(stage, loops[reduced[0]])
    return function if schedule is None else schedule.mod["main"].with_attrs(function.attrs or {})
