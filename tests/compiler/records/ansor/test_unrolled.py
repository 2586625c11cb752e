"""Innermost loops under Ansor's unroll pragma become vectors where that is the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi

from compiler.records.ansor.unrolled import vectorize_unrolled


def scheduled(compute, pragma=True):
    """The function of a compute with the pragma on its outermost loop."""
    schedule = tvm.s_tir.Schedule(te.create_prim_func(compute))
    block = schedule.get_sblock(compute[-1].op.name)
    if schedule.get(block).init is not None:
        schedule.decompose_reduction(block, schedule.get_loops(block)[-2])
    if pragma:
        loop = schedule.get_loops(block)[0]
        schedule.annotate(loop, "pragma_auto_unroll_max_step", 64)
        schedule.annotate(loop, "pragma_unroll_explicit", 1)
    return schedule.mod["main"]


def product(transposed, extent=16):
    """Rows times columns with the loops i, k, j; or i, j, k if the right side is transposed."""
    x = te.placeholder((8, 12), name="x")
    w = te.placeholder((extent, 12) if transposed else (12, extent), name="w")
    k = te.reduce_axis((0, 12), name="k")

    def term(i, j):
        return x[i, k] * (w[j, k] if transposed else w[k, j])

    y = te.compute((8, extent), lambda i, j: te.sum(term(i, j), axis=k), name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, w, y]))
    block = schedule.get_sblock("y")
    i, j, r = schedule.get_loops(block)
    schedule.reorder(*((i, j, r) if transposed else (i, r, j)))
    schedule.decompose_reduction(block, r)
    schedule.annotate(i, "pragma_auto_unroll_max_step", 64)
    schedule.annotate(i, "pragma_unroll_explicit", 1)
    return schedule.mod["main"]


def vectors(func):
    return func.script().count("T.vectorized")


def test_a_row_of_products_becomes_a_vector_with_the_same_numbers():
    func = product(transposed=False)
    changed = vectorize_unrolled(func)
    assert vectors(func) == 0 and vectors(changed) == 2  # the sums and their zeros
    mod = tvm.IRModule({"main": changed.with_attr("global_symbol", "main")})
    kernel = tvm.compile(mod, target="llvm")
    x, w = np.random.rand(8, 12).astype("float32"), np.random.rand(12, 16).astype("float32")
    out = tvm.runtime.empty((8, 16), "float32")
    kernel(tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    np.testing.assert_allclose(out.numpy(), x @ w, rtol=1e-5)


def test_a_sum_over_the_innermost_loop_stays_as_it_is():
    assert vectors(vectorize_unrolled(product(transposed=True))) == 0


def test_an_extent_that_makes_no_vectors_stays_as_it_is():
    assert vectors(vectorize_unrolled(product(transposed=False, extent=7))) == 0


def test_nothing_changes_without_the_pragma():
    x = te.placeholder((4, 16), name="x")
    func = scheduled([x, topi.nn.relu(x)], pragma=False)
    assert vectorize_unrolled(func).script() == func.script()


@pytest.mark.parametrize(
    "read", [lambda x, i, j: x[j, i], lambda x, i, j: x[i, 2 * j], lambda x, i, j: x[i, 15 - j]]
)
def test_elements_that_do_not_lie_in_a_row_are_not_read_as_a_vector(read):
    x = te.placeholder((16, 32), name="x")
    y = te.compute((16, 16), lambda i, j: read(x, i, j), name="y")
    assert vectors(vectorize_unrolled(scheduled([x, y]))) == 0
