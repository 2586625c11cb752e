"""The emulation itself must notice what goes wrong on a device."""

import os
import subprocess
import sys

import pytest
from tvm import te
from tvm.s_tir import dlight
from tvm.script import tirx as T

from tests.schedules.cuda.checking import TARGET, tensor
from tests.schedules.cuda.emulation import COMPILER, Emulated
from tests.schedules.cuda.families import FAMILIES

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


@T.prim_func(s_tir=True)
def writes_behind_its_output(y: T.Buffer((60,), "float32")):
    with T.sblock("root"):
        for thread in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("copy"):
                T.reads()
                T.writes(y[thread])
                y[thread] = T.float32(1)


def test_a_write_out_of_bounds_is_found(tmp_path):
    emulated = Emulated(writes_behind_its_output, TARGET, tmp_path)
    with pytest.raises(AssertionError, match="out of the bounds of y"):
        emulated([])


def test_tvms_gemv_rule_still_writes_out_of_bounds_and_is_rightly_left_out(tmp_path):
    x, w = tensor(1, 1280), tensor(1000, 1280, name="w")
    k = te.reduce_axis((0, 1280), name="k")
    y = te.compute((1, 1000), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    with TARGET:
        schedule = dlight.gpu.GEMV().apply(te.create_prim_func([x, w, y]), TARGET, False)
    emulated = Emulated(schedule.mod["main"], TARGET, tmp_path)
    with pytest.raises(AssertionError, match="out of the bounds"):
        emulated([])


DIVERGENT = """
import sys
from pathlib import Path
from tvm.script import tirx as T
from tests.schedules.cuda.checking import TARGET
from tests.schedules.cuda.emulation import Emulated

@T.prim_func(s_tir=True)
def divergent(y: T.Buffer((64,), "float32")):
    with T.sblock("root"):
        for thread in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("half_wait"):
                T.reads()
                T.writes(y[thread])
                if thread < 32:
                    T.evaluate(T.tvm_storage_sync("shared"))
                y[thread] = T.float32(1)

Emulated(divergent, TARGET, Path(sys.argv[1]))([])
"""


def test_a_barrier_that_only_some_threads_reach_is_found(tmp_path):
    script = tmp_path / "divergent.py"
    script.write_text(DIVERGENT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert done.returncode != 0
    assert "before a barrier" in done.stderr


def test_most_missing_barriers_are_noticed_without_nvcc(tmp_path):
    """Three of four; the interpreter of PTX notices the fourth too (test_families.py)."""
    family = next(family for family in FAMILIES if family.name == "softmax")
    _, func, target = family.scheduled()
    inputs, barrier = family.inputs(), "__syncthreads();"
    whole = Emulated(func, target, tmp_path)
    family.check(whole(inputs)[0], inputs)
    noticed = 0
    for nth in range(whole.source.count(barrier)):
        try:
            family.check(Emulated(func, target, tmp_path, barrier, nth)(inputs)[0], inputs)
        except AssertionError:
            noticed += 1
    assert noticed == 3
