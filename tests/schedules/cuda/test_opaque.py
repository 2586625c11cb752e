"""Opaque blocks on CUDA: device code of their own, one thread, or a refusal."""

import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.script import tirx as T

from schedules.cuda import has_thread_bindings, rules
from tests.schedules.cuda.checking import TARGET, check_func, schedule, tensor
from tests.schedules.cuda.emulation import COMPILER

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


@T.prim_func(s_tir=True)
def running_sum_of_rows(x: T.Buffer((7, 9), "float32"), y: T.Buffer((7, 9), "float32")):
    with T.sblock("running_sum"):
        T.reads(x[0:7, 0:9])
        T.writes(y[0:7, 0:9])
        for row in T.parallel(7):
            y[row, 0] = x[row, 0]
            for column in range(8):
                y[row, column + 1] = y[row, column] + x[row, column + 1]


@T.prim_func(s_tir=True)
def running_sum(x: T.Buffer((9,), "float32"), y: T.Buffer((9,), "float32")):
    with T.sblock("running_sum"):
        T.reads(x[0:9])
        T.writes(y[0:9])
        y[0] = x[0]
        for position in range(8):
            y[position + 1] = y[position] + x[position + 1]


@needs_compiler
@pytest.mark.parametrize("func", [running_sum_of_rows, running_sum])
def test_a_serial_scan_runs_in_single_threads(func, tmp_path):
    assert check_func(func, tmp_path) == "cuda.opaque"


def test_a_parallel_loop_becomes_blocks():
    _, scheduled = schedule(running_sum_of_rows)
    assert 'T.thread_binding(7, thread="blockIdx.x")' in scheduled.script()


def test_tvms_device_sort_is_left_as_it_is():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 37), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.sort(x)))
    with TARGET:
        module = relax.backend.DispatchSortScan()(builder.get())
    sorts = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert sorts
    for func in sorts:
        name, scheduled = schedule(func)
        assert name == "cuda.opaque"
        tvm.ir.assert_structural_equal(scheduled.body, func.body)


def test_a_call_of_a_host_library_is_refused_by_every_rule():
    x = tensor(3, 17)
    func = te.create_prim_func([x, topi.sort(x, 1)])
    assert not has_thread_bindings(func)
    assert all(rule.apply(func, TARGET, False) is None for rule in rules())
