"""Intrinsics that are called inside of `te.compute`."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

import compiler.legacy.te as cte
from compiler.errors import ScheduleError
from compiler.legacy import ir_builder


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def buffer(tensor, scope=""):
    strides = [te.var(f"{tensor.op.name}_stride"), 1][-len(tensor.shape) :]
    return tvm.tirx.decl_buffer(
        tensor.shape,
        name=tensor.op.name,
        offset_factor=1,
        strides=strides,
        scope=scope,
        layout=None,
    )


def scaled_sum(lanes, scope=""):
    """z = x * factor + y, of one dimension."""
    factor = te.var("factor", "float32")
    x, y = (te.placeholder((lanes,), name=name) for name in "xy")
    z = te.compute((lanes,), lambda i: x[i] * factor + y[i], name="z")

    def code(ins, outs, scalars):
        ib = ir_builder.create()
        left, right, out = (ib.buffer_ptr(each) for each in [*ins, *outs])
        with ib.for_range(0, lanes, name="lane") as lane:
            out[lane] = left[lane] * scalars[0] + right[lane]
        ib.emit(tvm.tirx.call_extern("int32", "marker"))
        return ib.get()

    binds = {each: buffer(each, scope) for each in (x, y, z)}
    return cte.decl_tensor_intrin(z.op, code, name="scaled", binds=binds, scalar_params=[factor])


def without_marker(mod):
    """The module with the calls that show the intrinsic taken out."""

    def drop(node):
        is_marker = isinstance(node.value, tvm.ir.Call) and len(node.value.args) == 1
        return tvm.tirx.Evaluate(0) if is_marker else node

    import tvm_ffi

    func = mod["main"]
    body = tvm_ffi.structural_map(func.body, (tvm.tirx.Evaluate, drop))
    return tvm.IRModule({"main": func.with_body(body)})


def run(schedule, args, *arrays):
    """The result of a schedule whose intrinsic is there."""
    mod = cte.lower(schedule, args, simple_mode=True)
    assert "marker" in str(mod)
    out = tvm.runtime.tensor(np.zeros([int(n) for n in args[-1].shape], "float32"))
    cte.build(without_marker(mod), target="llvm")(*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


def rows_times_two(scope=""):
    a, b = (te.placeholder((6, 8), name=name) for name in "ab")
    called = scaled_sum(4, scope)
    c = cte.compute(
        (6, 2, 4),
        lambda i, j: called(a[i, j * 4 : j * 4 + 4], (i + 1).astype("float32"), b[i, 0:4]),
        name="c",
    )
    return [a, b, c], c


def expected(x, y):
    return x.reshape(6, 2, 4) * np.arange(1, 7).reshape(6, 1, 1) + y[:, None, :4]


def test_a_call_computes_a_tile_with_numbers_of_its_own(rng):
    args, c = rows_times_two()
    x, y = rng.random((2, 6, 8), "float32")
    schedule = cte.create_schedule(c.op)
    found = run(schedule, args, x, y)
    np.testing.assert_allclose(found, expected(x, y), rtol=1e-6)


def test_loops_around_a_call_are_scheduled(rng):
    args, c = rows_times_two()
    x, y = rng.random((2, 6, 8), "float32")
    schedule = cte.create_schedule(c.op)
    i, j, _ = schedule[c].op.axis
    outer, inner = schedule[c].split(i, 2)
    schedule[c].reorder(outer, j, inner)
    schedule[c].parallel(outer)
    np.testing.assert_allclose(run(schedule, args, x, y), expected(x, y), rtol=1e-6)


def test_inputs_and_results_of_a_call_lie_in_caches(rng):
    (a, b, _), c = rows_times_two("local")
    x, y = rng.random((2, 6, 8), "float32")
    schedule = cte.create_schedule(c.op)
    copies = [schedule.cache_read(each, "local", c) for each in (a, b)]
    written = schedule.cache_write(c, "local")
    for each in copies:
        schedule[each].compute_at(schedule[written], schedule[written].op.axis[1])
    schedule[written].compute_at(schedule[c], schedule[c].op.axis[1])
    np.testing.assert_allclose(run(schedule, [a, b, c], x, y), expected(x, y), rtol=1e-6)


def matrix_product(n, m, depth):
    k = te.reduce_axis((0, depth), name="k")
    x, y = te.placeholder((n, depth), name="x"), te.placeholder((m, depth), name="y")
    z = te.compute((n, m), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="z")

    def code(ins, outs):
        def reset():
            ib = ir_builder.create()
            out = ib.buffer_ptr(outs[0])
            with ib.for_range(0, n) as i, ib.for_range(0, m) as j:
                out[i, j] = 0.0
            return ib.get()

        def update():
            ib = ir_builder.create()
            left, right, out = (ib.buffer_ptr(each) for each in [*ins, *outs])
            with ib.for_range(0, n) as i, ib.for_range(0, m) as j, ib.for_range(0, depth) as d:
                out[i, j] = out[i, j] + left[i, d] * right[j, d]
            ib.emit(tvm.tirx.call_extern("int32", "marker"))
            return ib.get()

        return tvm.tirx.SeqStmt([reset(), update()]), reset(), update()

    binds = {each: buffer(each) for each in (x, y, z)}
    return cte.decl_tensor_intrin(z.op, code, name="product", binds=binds)


def test_a_call_does_a_part_of_a_reduction(rng):
    product = matrix_product(2, 3, 4)
    a, b = te.placeholder((5, 6, 2, 4), name="a"), te.placeholder((3, 6, 3, 4), name="b")
    k = te.reduce_axis((0, 6), name="ko")
    c = cte.compute(
        (5, 3, 2, 3), lambda i, j: product(a[i, k, 0:2, 0:4], b[j, k], reduce_axis=k), name="c"
    )
    assert [str(axis.var.name) for axis in c.op.reduce_axis] == ["ko", "k"]
    x, y = rng.random((5, 6, 2, 4), "float32"), rng.random((3, 6, 3, 4), "float32")
    found = run(cte.create_schedule(c.op), [a, b, c], x, y)
    np.testing.assert_allclose(found, np.einsum("ikmd,jknd->ijmn", x, y), rtol=1e-5)


def test_a_call_that_does_not_fit_is_refused_by_name():
    product, scaled = matrix_product(2, 3, 4), scaled_sum(4)
    a, b = te.placeholder((6, 8), name="a"), te.placeholder((6, 3), name="b")
    for function, shape, message in [
        (lambda i: scaled(a[i, 0:4], 1.0, b[i]), (6, 4), r"takes \[4\] elements as y, not \[3\]"),
        (lambda i: scaled(a[i, 0:4], a[i, 4:8]), (6, 4), "takes 1 scalars, not 0"),
        (lambda i: scaled(a[i, 0:4], 1.0), (6, 4), "takes 2 tensors, not 1"),
        (lambda i: scaled(a[i, 0:4], 1.0, a[i, 4:8]), (6, 5), "computes 4 elements along i, not 5"),
        (lambda i: product(a[0:2, 0:4], a[0:3, 0:4]), (6, 2), "has a result of 2 dimensions"),
    ]:
        with pytest.raises(ScheduleError, match=message):
            cte.compute(shape, function, name="c")
    with pytest.raises(ScheduleError, match=r"is the whole of what a te\.compute returns"):
        cte.compute((6, 4), lambda i, j: scaled(a[i, 0:4], 1.0, a[i, 4:8]), name="c")
