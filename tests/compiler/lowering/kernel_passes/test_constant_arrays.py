"""Tables of constants that unrolled loops read are folded without a copy for each statement."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.topi.utils import const_matrix

from compiler.lowering.kernel_passes.constant_arrays import fold_constant_tables
from compiler.lowering.kernel_passes.pipeline import PIPELINE

TABLE = np.array([[1, 0, 0, 0], [0, 1, -1, -1], [-1, 1, 1, 0.5], [0, 0, 2, 1]], "float32")
ALPHA, COUNT = len(TABLE), 8
NOTHING = tvm.transform.Sequential([])


def transform(unrolled=("e", "a")):
    """y[e, p] is the sum over a of x[a, p] * TABLE[a, e]; these loops are unrolled."""
    x = te.placeholder((ALPHA, COUNT), "float32", "x")
    table = const_matrix(TABLE, "table")
    a = te.reduce_axis((0, ALPHA), "a")
    y = te.compute((ALPHA, COUNT), lambda e, p: te.sum(x[a, p] * table[a, e], axis=a), "y")
    schedule = Schedule(te.create_prim_func([x, y]))
    schedule.compute_inline(schedule.get_sblock("table"))
    block = schedule.get_sblock("y")
    e, p, reduced = schedule.get_loops(block)
    schedule.reorder(p, e, reduced)
    schedule.decompose_reduction(block, e)
    e, reduced = schedule.get_loops(schedule.get_sblock("y_update"))[-2:]
    for name, loop in (("e", e), ("a", reduced)):
        if name in unrolled:
            schedule.unroll(loop)
    return schedule.mod["main"].with_attr("global_symbol", "main")


def lowered(func, pipeline):
    target = tvm.target.Target("llvm")
    mod = tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule({"main": func}))
    return tirx.get_tir_pipeline(pipeline)[0](mod)


def count(mod, kind):
    found = []
    for func in mod.functions.values():
        tvm_ffi.structural_walk(func.body, (kind, found.append))
    return found


def compute(func, x):
    y = tvm.runtime.tensor(np.zeros((ALPHA, COUNT), "float32"))
    tvm.compile(func, "llvm", tir_pipeline=PIPELINE)["main"](tvm.runtime.tensor(x), y)
    return y.numpy()


@pytest.mark.parametrize("unrolled", ["ea", "e", "a", ""])
def test_tables_keep_their_numbers(unrolled):
    x = np.random.default_rng(0).standard_normal((ALPHA, COUNT)).astype("float32")
    func = transform(unrolled)
    np.testing.assert_allclose(compute(func, x), TABLE.T @ x, rtol=1e-5, atol=1e-6)


def test_unrolled_tables_leave_the_same_statements_as_without():
    func = transform()
    plain, folded = lowered(func, "default"), lowered(func, PIPELINE)
    for kind in (tirx.BufferStore, tirx.Select, tirx.Mul, tirx.FloatImm):
        assert len(count(folded, kind)) == len(count(plain, kind))
    assert not count(folded, tirx.Select)


@pytest.mark.parametrize("unrolled", ["e", "a", ""])
def test_tables_that_other_loops_read_stay(unrolled):
    func = transform(unrolled)
    folded = fold_constant_tables(NOTHING)(tvm.IRModule({"main": func}))
    assert folded["main"].same_as(func)


def test_a_table_whose_place_stays_unknown_is_a_chain_again():
    func = transform()
    folded = fold_constant_tables(NOTHING)(tvm.IRModule({"main": func}))["main"]
    assert not folded.same_as(func)
    tvm.ir.assert_structural_equal(folded.body, func.body)
