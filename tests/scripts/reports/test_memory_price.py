"""Predicted memory accesses of CUDA kernels against those that the PTX interpreter counts."""

import numpy as np
import pytest
from tvm import topi
from tvm.target import Target

from schedules.cuda import device
from scripts.reports import memory_price
from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.checking import tensor
from tests.schedules.cuda.families import FAMILIES, Family

DEVICE = device.of(Target({"kind": "cuda", "arch": "sm_90"}))
MEMORY_BOUND = (
    "depthwise",
    "depthwise in vectors",
    "depthwise, half, strided",
    "pooling",
    "pooling, half",
    "transpose",
    "layout change, half",
    "elementwise, large",
    "elementwise",
)


@pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("name", MEMORY_BOUND)
def test_predicted_accesses_are_those_of_the_interpreter(name):
    family = next(each for each in FAMILIES if each.name == name)
    _, func, target = family.scheduled()
    found = Scheduled(func, target).interpret(family.inputs(), races=False).traffic
    (kernel,) = memory_price.kernels(func)
    assert kernel.requests == pytest.approx(found.requests, rel=0.1)
    assert kernel.sectors == pytest.approx(found.sectors, rel=0.1)
    assert kernel.block_sectors == pytest.approx(found.block_sectors, rel=0.1)
    warps = kernel.blocks * -(-kernel.threads // 32)
    assert 1 / 3 < warps * kernel.operations / found.instructions < 3
    assert kernel.seconds(DEVICE) > DEVICE.launch_seconds


def test_rows_of_a_table_that_are_not_read_cost_nothing():
    x, at = tensor(50000, 64), tensor(900, dtype="int32", name="at")
    _, func, _ = Family("take", lambda: [x, at, topi.take(x, at, 0)]).scheduled()
    (kernel,) = memory_price.kernels(func)
    assert kernel.bytes == pytest.approx(900 * (64 + 64 + 1) * 4, rel=0.1)


def test_time_grows_with_the_work_and_never_falls_below_the_memory():
    times = []
    for rows in (16, 1024, 65536):
        x = tensor(rows, 256)
        _, func, _ = Family("relu", lambda x=x: [x, topi.nn.relu(x)]).scheduled()
        (kernel,) = memory_price.kernels(func)
        times.append(kernel.seconds(DEVICE))
        assert kernel.bytes == pytest.approx(2 * rows * 256 * 4, rel=0.01)
        assert times[-1] > DEVICE.launch_seconds + kernel.bytes / DEVICE.bandwidth
    assert times == sorted(times)
    assert np.diff(times)[1] > np.diff(times)[0]


def test_instructions_of_tensor_cores_are_not_priced_by_their_accesses():
    family = next(each for each in FAMILIES if each.name == "conv, half")
    assert memory_price.kernels(family.scheduled()[1]) is None
