"""Records that are built and checked without their network."""

from __future__ import annotations

import pytest

from compiler import target as targets
from compiler.autotvm.rebuild import rebuild
from compiler.autotvm.record import LoggedTask, MeasureInput
from schedules.config import ConfigEntity


def rebuilt(*args):
    task = LoggedTask("layout_transform", args)
    target = targets.parse("llvm")
    return rebuild(MeasureInput(target, task, ConfigEntity(index=0), 0), target)


@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        ((1, 32, 5, 7), "NCHW", "NCHW16c"),
        ((2, 2, 5, 7, 16), "NCHW16c", "NCHW8c"),
        ((1, 4, 5, 7, 8), "NCHW8c", "NCHW"),
    ],
)
def test_a_change_of_layout_is_built_and_right(shape, before, after):
    outcome = rebuilt(("TENSOR", shape, "float32"), before, after)
    assert outcome.built, outcome.reason
    assert outcome.right and outcome.error == 0


@pytest.mark.parametrize(("before", "after"), [("NHWC", "NCHW"), ("NCHW", "NCHW12c")])
def test_a_change_between_other_layouts_is_refused_by_name(before, after):
    outcome = rebuilt(("TENSOR", (1, 32, 5, 7), "float32"), before, after)
    assert not outcome.built
    assert outcome.reason == f"no template layout_transform from {before} to {after}"
