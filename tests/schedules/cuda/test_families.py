"""Kernels of the families as nvcc makes them, in the interpreter of PTX.

All families, and every mutant of them: `make gpu-proof`.
"""

import pytest

from tests.ptx import ptxas
from tests.ptx.mutants import mutants
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.families import FAMILIES

pytestmark = pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")
BY_NAME = {family.name: family for family in FAMILIES}


def interpreted(name):
    family = BY_NAME[name]
    _, func, target = family.scheduled()
    return family, Scheduled(func, target), family.inputs()


@pytest.mark.parametrize("name", ["dense", "wide reduction", "layer norm"])
def test_a_kernel_is_right_and_does_nothing_wrong(name):
    family, scheduled, inputs = interpreted(name)
    outcome = scheduled.interpret(inputs)
    assert [str(problem) for problem in outcome.problems] == []
    family.check(outcome.outputs[0], inputs)


@pytest.mark.parametrize("name", ["transpose", "softmax"])
def test_missing_barriers_and_short_arrays_are_noticed(name):
    _, scheduled, inputs = interpreted(name)
    unnoticed = [
        mutant.missing
        for mutant in mutants(scheduled.ptx, scheduled.launches)
        if not scheduled.interpret(inputs, mutant.ptx, mutant.launches).problems
    ]
    assert unnoticed == []
