"""Schedules for CUDA: their kernels are compiled by nvcc, and not run."""

from __future__ import annotations

import shutil

import pytest
from tvm import te

import compiler.legacy.te as cte
from compiler.errors import ScheduleError

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


def rows():
    n = te.var("n")
    a = te.placeholder((n, 64), name="A")
    k = te.reduce_axis((0, 64), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    return a, b


def across_threads():
    a, b = rows()
    s = cte.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=16)
    partial = s.rfactor(b, inner)
    outer, inner = s[b].split(s[b].op.axis[0], factor=32)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.y"))
    thread = te.thread_axis("threadIdx.x")
    s[b].bind(s[b].op.reduce_axis[0], thread)
    s[partial].compute_at(s[b], s[b].op.reduce_axis[0])
    s[b].set_store_predicate(thread.var.equal(0))
    return s, [a, b]


def test_a_loop_that_is_bound_again_is_run_by_the_last_thread():
    x = te.placeholder((32,), name="x")
    y = te.compute((32,), lambda i: x[i] + 1.0, name="y")
    s = cte.create_schedule(y.op)
    s[y].bind(y.op.axis[0], te.thread_axis("blockIdx.x"))
    s[y].bind(y.op.axis[0], te.thread_axis("threadIdx.x"))
    text = cte.lower(s, [x, y], simple_mode=True).script()
    assert "threadIdx.x" in text and "blockIdx.x" not in text


def test_a_reduction_by_threads_keeps_each_part_in_its_thread():
    s, args = across_threads()
    text = cte.lower(s, args, simple_mode=True).script()
    assert "B_rf = T.alloc_local((1, 1))" in text
    assert "T.tvm_thread_allreduce" in text
    assert "threadIdx_x == 0" in text


def shared_tile():
    a = te.placeholder((64, 64), name="A")
    b = te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = cte.create_schedule(c.op)
    local = s.cache_write(c, "local")
    shared = s.cache_read(a, "shared", [local])
    x, y = s[c].op.axis
    bx, rest = s[c].split(x, 32)
    vx, tx = s[c].split(rest, 16)
    by, ty = s[c].split(y, 16)
    s[c].reorder(bx, by, vx, tx, ty)
    threads = te.thread_axis((0, 16), "threadIdx.x"), te.thread_axis((0, 16), "threadIdx.y")
    s[c].bind(bx, te.thread_axis("blockIdx.x"))
    s[c].bind(by, te.thread_axis("blockIdx.y"))
    s[c].bind(vx, te.thread_axis((0, 2), "vthread"))
    s[c].bind(tx, threads[0])
    s[c].bind(ty, threads[1])
    s[local].compute_at(s[c], ty)
    outer, _ = s[local].split(local.op.reduce_axis[0], 8)
    s[shared].compute_at(s[local], outer)
    fused = s[shared].fuse(*s[shared].op.axis)
    rest, tx = s[shared].split(fused, 16)
    rest, ty = s[shared].split(rest, 16)
    s[shared].bind(tx, threads[0])
    s[shared].bind(ty, threads[1])
    return s, [a, b, c]


def test_what_threads_share_covers_all_of_them():
    s, args = shared_tile()
    text = cte.lower(s, args, simple_mode=True).script()
    assert "A_shared = T.alloc_shared((32, 8))" in text
    assert "C_local = T.alloc_local((1, 1))" in text


@needs_nvcc
@pytest.mark.parametrize("make", [across_threads, shared_tile])
def test_nvcc_compiles_the_kernel(make):
    s, args = make()
    built = cte.build(s, args, "cuda -arch=sm_80", name="kernel")
    source = built.imports[0].inspect_source()
    assert "__global__" in source and "kernel_kernel" in source


def test_threads_of_two_numbers_are_refused():
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] + 1.0, name="C")
    s = cte.create_schedule(c.op)
    s[c].bind(s[c].split(c.op.axis[0], 8)[1], te.thread_axis((0, 16), "threadIdx.x"))
    with pytest.raises(ScheduleError, match=r"bind of stage C: threadIdx\.x has 16 threads"):
        cte.lower(s, [a, c])


@pytest.mark.parametrize("how", ["blockIdx.x", "parallel"])
def test_a_racing_reduction_is_lowered_to_be_printed_and_never_built(how):
    a, b = rows()
    s = cte.create_schedule(b.op)
    (axis,) = b.op.reduce_axis
    s[b].parallel(axis) if how == "parallel" else s[b].bind(axis, te.thread_axis(how))
    lowered = cte.lower(s, [a, b], simple_mode=True)
    assert ("T.parallel" if how == "parallel" else "blockIdx.x") in str(lowered)
    for given in (lowered, s):
        with pytest.raises(ScheduleError, match=r"of stage B: .*reduction"):
            cte.build(given, [a, b] if given is s else None, "llvm")
