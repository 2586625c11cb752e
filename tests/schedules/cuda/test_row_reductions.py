"""Rows that are reduced and mapped in one kernel: a warp a row, or a block."""

import re

import pytest
from tvm import te, topi
from tvm.target import Target

from schedules.cuda import device as devices
from schedules.cuda.row_reductions import THREADS, seconds
from tests.ptx import ptxas
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.checking import TARGET, check, schedule, tensor
from tests.schedules.cuda.emulation import COMPILER

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")
NAME = "cuda.row_reductions"


def extents(*tensors):
    """Extents of the threads of the kernel that is made."""
    name, scheduled = schedule(te.create_prim_func(list(tensors)))
    assert name == NAME
    pattern = r'thread_binding\((?:T.int64\()?(\d+)\)?, thread="threadIdx.(.)"'
    return {axis: int(extent) for extent, axis in re.findall(pattern, scheduled.script())}


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "compute"),
    [
        ((531, 20), topi.nn.softmax),
        ((2, 3, 70), topi.nn.softmax),
        ((1, 24), topi.nn.softmax),
        ((2, 1500), topi.nn.log_softmax),
        ((5, 33), lambda x: x / topi.sqrt(topi.sum(x * x, 1, keepdims=True) + 1e-6)),
        ((3, 4, 5, 6), lambda x: x - topi.sum(x, (2, 3), keepdims=True)),
        ((3, 60), lambda x: topi.cast(topi.nn.softmax(x) * 3.0, "float32")),
    ],
)
def test_rows_are_right(shape, compute, tmp_path):
    x = tensor(*shape)
    assert check([x, compute(x)], tmp_path) == NAME


def test_a_short_row_has_a_warp_and_a_long_one_a_block():
    x, y = tensor(10000, 100), tensor(2, 50257)
    assert extents(x, topi.nn.softmax(x)) == {"y": 4, "x": 32}
    assert extents(y, topi.nn.softmax(y)) == {"x": 1024}


def test_more_rows_leave_fewer_threads_for_each():
    device = devices.of(TARGET)

    def threads(rows):
        return min(THREADS, key=lambda each: seconds(rows, 768, 3, each, device))

    assert threads(100000) < threads(128) < 1024


@pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")
def test_a_row_of_a_vocabulary_takes_few_registers():
    x = tensor(4, 50257)
    _, scheduled = schedule(te.create_prim_func([x, topi.nn.softmax(x)]))
    made = Scheduled(scheduled, Target({"kind": "cuda", "arch": "sm_90"}, host="llvm"))
    (used,) = ptxas.resources(made.ptx, "sm_90").values()
    assert used.registers <= 40
    assert used.spilled == 0
