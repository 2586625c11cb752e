"""`tensorize` replaces loops by an intrinsic that computes the same, and by no other."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

import compiler.legacy.te as cte
from compiler.errors import ScheduleError
from compiler.legacy import ir_builder

LANES = 4


def row_times_block(depth, with_parts=False, stride_known=False):
    """c[0:4] = sum over k of a[k] * b[0:4, k]; in parts: reset and update."""
    a = te.placeholder((depth,), name="a")
    b = te.placeholder((LANES, depth), name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((LANES,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    strides = None if stride_known else [te.var("row"), 1]
    buffers = {
        a: tvm.tirx.decl_buffer(a.shape, name="A", offset_factor=1, strides=[1], layout=None),
        b: tvm.tirx.decl_buffer(b.shape, name="B", offset_factor=1, strides=strides, layout=None),
        c: tvm.tirx.decl_buffer(c.shape, name="C", offset_factor=1, strides=[1], layout=None),
    }

    def code(ins, outs):
        def reset():
            ib = ir_builder.create()
            out = ib.buffer_ptr(outs[0])
            with ib.for_range(0, LANES, name="i") as i:
                out[i] = 0.0
            return ib.get()

        def update():
            ib = ir_builder.create()
            left, right, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(ins[1]), ib.buffer_ptr(outs[0])
            with ib.for_range(0, LANES, name="i") as i, ib.for_range(0, depth, name="k") as k:
                out[i] = out[i] + left[k] * right[i, k]
            return ib.get()

        whole = tvm.tirx.SeqStmt([reset(), update()])
        return (whole, reset(), update()) if with_parts else whole

    return cte.decl_tensor_intrin(c.op, code, name="row_times_block", binds=buffers)


def product(n=6, m=12, depth=8):
    a = te.placeholder((n, depth), name="A")
    b = te.placeholder((m, depth), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return [a, b, c], c


def check(schedule, args):
    a, b = (np.random.rand(*(int(x) for x in t.shape)).astype("float32") for t in args[:2])
    out = tvm.runtime.empty((a.shape[0], b.shape[0]), "float32")
    cte.build(schedule, args)(tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b.T, rtol=1e-5)


def test_a_whole_reduction_is_computed_by_the_body():
    args, c = product()
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], LANES)
    s[c].reorder(c.op.axis[0], outer, inner, c.op.reduce_axis[0])
    s[c].tensorize(inner, row_times_block(8))
    check(s, args)


def test_a_part_of_a_reduction_is_computed_by_reset_and_update():
    args, c = product()
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], LANES)
    k_outer, k_inner = s[c].split(c.op.reduce_axis[0], 2)
    s[c].reorder(c.op.axis[0], outer, k_outer, inner, k_inner)
    s[c].tensorize(inner, row_times_block(2, with_parts=True))
    check(s, args)


def test_an_intrinsic_of_one_result_reads_rows_of_matrices():
    x, y = (te.placeholder((LANES,), name=name) for name in "xy")
    k = te.reduce_axis((0, LANES), name="k")
    z = te.compute((1,), lambda i: te.sum(x[k] * y[k], axis=k), name="z")

    def code(ins, outs):
        ib = ir_builder.create()
        left, right, out = (ib.buffer_ptr(each) for each in (*ins, *outs))
        out[0] = sum(left[n] * right[n] for n in range(LANES))
        return ib.get()

    args, c = product(depth=LANES)
    s = cte.create_schedule(c.op)
    s[c].tensorize(c.op.reduce_axis[0], cte.decl_tensor_intrin(z.op, code, name="dot"))
    check(s, args)


@pytest.mark.parametrize(
    ("lanes", "intrin", "words"),
    [
        (3, row_times_block(8), "j has 3 elements inside of the loop"),
        (5, row_times_block(8), "j has 5 elements"),
        (LANES, row_times_block(4), "k has 8 elements inside of the loop"),
    ],
)
def test_an_intrinsic_of_other_shapes_is_refused(lanes, intrin, words):
    args, c = product(m=15)
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], lanes)
    s[c].reorder(c.op.axis[0], outer, inner, c.op.reduce_axis[0])
    s[c].tensorize(inner, intrin)
    with pytest.raises(ScheduleError, match=f"tensorize of stage C at j.inner.*{words}"):
        cte.lower(s, args)


def test_an_intrinsic_of_another_computation_is_refused():
    a = te.placeholder((6, 8), name="A")
    b = te.placeholder((12, 8), name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((6, 12), lambda i, j: te.sum(a[i, k] + b[j, k], axis=k), name="C")
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], LANES)
    s[c].reorder(c.op.axis[0], outer, inner, k)
    s[c].tensorize(inner, row_times_block(8))
    with pytest.raises(ScheduleError, match="it computes"):
        cte.lower(s, [a, b, c])


def test_a_stride_that_the_intrinsic_does_not_allow_is_refused():
    args, c = product()
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], LANES)
    k_outer, k_inner = s[c].split(c.op.reduce_axis[0], 2)
    s[c].reorder(c.op.axis[0], outer, k_outer, inner, k_inner)
    s[c].tensorize(inner, row_times_block(2, with_parts=True, stride_known=True))
    with pytest.raises(ScheduleError, match="declare a buffer with strides"):
        cte.lower(s, args)
