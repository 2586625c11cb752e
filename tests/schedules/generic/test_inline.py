"""Inlining of elementwise stages keeps the stages whose expressions would grow exponentially."""

from __future__ import annotations

import tvm
from tvm import s_tir, te, tirx

from schedules.generic.inline import MAX_NESTED_EXTREMES, inline_stages
from schedules.generic.stages import nested_extremes, stages


def chain(length: int, function):
    """A schedule of stages that each apply `function` to the one before and another tensor."""
    tensors = [te.placeholder((4,), name=f"x{i}") for i in range(length + 1)]
    value = tensors[0]
    for index, other in enumerate(tensors[1:]):
        value = _stage(index, value, other, function)
    return s_tir.Schedule(te.create_prim_func([*tensors, value]))


def _stage(index: int, one, other, function):
    return te.compute((4,), lambda i: function(one[i], other[i]), name=f"stage{index}")


def test_maxima_nest_no_deeper_than_the_limit():
    sch = chain(30, tirx.max)
    inline_stages(sch)
    depths = [nested_extremes(stage.block) for stage in stages(sch)]
    assert sum(depths) == 30
    assert max(depths) <= MAX_NESTED_EXTREMES


def test_sums_are_inlined_into_one_stage():
    sch = chain(30, lambda a, b: a + b)
    inline_stages(sch)
    assert len(stages(sch)) == 1


def test_maxima_with_constants_are_inlined_into_one_stage():
    sch = chain(30, lambda a, b: tirx.max(a, tvm.tirx.const(0.0, "float32")) + b)
    inline_stages(sch)
    assert len(stages(sch)) == 1
