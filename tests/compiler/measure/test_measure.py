"""Whatever a candidate does becomes an error number, and the next one is measured."""

from __future__ import annotations

import os

import numpy as np
import pytest
from templates import BehaviorS, register

from compiler import autotvm
from compiler.autotvm.measure import measure_batch
from compiler.autotvm.task import TaskCandidate
from compiler.errors import BatonError
from compiler.measure.candidate import MeasureErrorNo

register()

EXPECTED = {
    "fine": MeasureErrorNo.NO_ERROR,
    "refuses": MeasureErrorNo.INSTANTIATION_ERROR,
    "raises": MeasureErrorNo.INSTANTIATION_ERROR,
    "crashes": MeasureErrorNo.RUNTIME_DEVICE,
    "hangs": MeasureErrorNo.BUILD_TIMEOUT,
    "hoards": MeasureErrorNo.COMPILE_HOST,
    "wrong": MeasureErrorNo.WRONG_ANSWER,
    "aborts": MeasureErrorNo.RUNTIME_DEVICE,
    "spins": MeasureErrorNo.RUN_TIMEOUT,
}


@pytest.fixture(scope="module")
def option():
    parts = autotvm.measure_option(
        autotvm.LocalBuilder(timeout=8, n_parallel=1),
        autotvm.LocalRunner(timeout=4, cooldown_interval=0, number=1, check_correctness=True),
    )
    yield parts
    for part in parts.values():
        part.close()


@pytest.fixture(scope="module")
def results(option):
    task = autotvm.task.create("test.misbehaving", ("x",), "llvm")
    candidates = [TaskCandidate(task, task.config_space.get(i)) for i in range(len(BehaviorS))]
    return dict(zip(BehaviorS, measure_batch(option, candidates)))


@pytest.mark.parametrize("how", BehaviorS)
def test_each_misbehaviour_has_its_error_number(results, how):
    assert results[how].error_no == EXPECTED[how], results[how].error_msg


def test_a_failure_costs_what_logs_say_and_names_its_reason(results):
    assert results["crashes"].costs == (1e9,)
    assert "SIGSEGV" in results["crashes"].error_msg
    assert "can't be scheduled" in results["refuses"].error_msg
    assert "relative error" in results["wrong"].error_msg
    assert 0 < results["fine"].costs[0] < 1


def test_libraries_are_deleted_once_they_ran(option):
    task = autotvm.task.create("test.split_sum", (32,), "llvm")
    measure_batch(option, [TaskCandidate(task, task.config_space.get(0))])
    assert not os.listdir(option["builder"]._folder.name)


def test_extreme_repeats_are_dropped():
    from compiler.measure.timing import _without_extremes

    assert _without_extremes([3.0, 1.0, 2.0]) == (2.0,)
    assert _without_extremes([3.0, 1.0]) == (3.0, 1.0)


def test_given_inputs_take_the_place_of_random_ones():
    runner = autotvm.LocalRunner(timeout=10, cooldown_interval=0, number=1, repeat=1)
    runner.ref_input = [np.ones((32, 32), "float32"), np.zeros(32, "float32")]
    builder = autotvm.LocalBuilder(timeout=15, n_parallel=1)
    task = autotvm.task.create("test.split_sum", (32,), "llvm")
    results = measure_batch(
        autotvm.measure_option(builder, runner), [TaskCandidate(task, task.config_space.get(0))]
    )
    builder.close()
    runner.close()
    assert results[0].is_right, results[0].error_msg


def test_unknown_builders_are_refused():
    with pytest.raises(BatonError, match="'tar'"):
        autotvm.LocalBuilder(build_func="tar")
    with pytest.raises(BatonError, match="'remote'"):
        autotvm.measure_option("remote", "local")


def test_a_tracker_that_does_not_answer_is_named():
    with pytest.raises(BatonError, match=r"127\.0\.0\.1:1"):
        autotvm.RPCRunner("key", "127.0.0.1", 1)
