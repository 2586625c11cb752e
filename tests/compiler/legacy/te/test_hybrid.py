# ruff: noqa: F821 - hybrid functions call words of their language
"""Functions of loops that are operations of TE, and run as Python."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import compiler.legacy.te as cte
from compiler.errors import ScheduleError
from compiler.legacy.te.dataflow import loops_of, substitute
from compiler.legacy.te.hybrid import HybridModule, script


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def run(outs, inputs, *values, schedule=None):
    """What a schedule of tensors computes of arrays and numbers."""
    outs = outs if isinstance(outs, list) else [outs]
    schedule = schedule or cte.create_schedule([outs[0].op])
    library = cte.build(schedule, [*inputs, *outs], "llvm")
    sizes = {
        var: tirx.const(value, "int32")
        for var, value in zip(inputs, values)
        if not isinstance(value, np.ndarray)
    }
    shapes = [[int(substitute(extent, sizes)) for extent in out.shape] for out in outs]
    results = [
        tvm.runtime.tensor(np.zeros(shape, str(out.dtype))) for out, shape in zip(outs, shapes)
    ]
    given = [v if not isinstance(v, np.ndarray) else tvm.runtime.tensor(v) for v in values]
    library(*given, *results)
    found = [each.numpy() for each in results]
    return found if len(found) > 1 else found[0]


@script
def outer_product(n, m, a, b):
    """Products of all pairs."""
    c = output_tensor((n, m), a.dtype)
    for i in range(n):
        for j in range(m):
            assert i < n and j < m, "index out of range!"
            c[i, j] = a[i] * b[j]
    return c


def vectors(*extents):
    return [te.placeholder((extent,), name=name) for extent, name in zip(extents, "abc")]


def test_the_same_function_is_an_operation_and_runs(rng):
    n, m = te.var("n"), te.var("m")
    a, b = vectors(n, m)
    c = outer_product(n, m, a, b)
    x, y = (rng.random(extent, "float32") for extent in (7, 5))
    expected = np.outer(x, y)
    np.testing.assert_allclose(run(c, [n, m, a, b], 7, 5, x, y), expected, rtol=1e-6)
    np.testing.assert_allclose(outer_product(7, 5, x, y), expected, rtol=1e-6)
    assert "output_tensor" not in globals()


def test_loops_are_split_reordered_fused_and_marked(rng):
    a, b = vectors(30, 20)
    x, y = (rng.random(extent, "float32") for extent in (30, 20))
    c = outer_product(30, 20, a, b)
    schedule = cte.create_schedule(c.op)
    i, j = loops_of(c.op)
    io, ii = schedule[c].split(i, 7)
    jo, ji = schedule[c].split(j, 8)
    schedule[c].reorder(io, jo, ii, ji)
    schedule[c].parallel(schedule[c].fuse(io, jo))
    schedule[c].unroll(ji)
    text = str(cte.lower(schedule, [a, b, c], simple_mode=True))
    assert "i_outer_j_outer_fused in T.parallel(15)" in text and "T.unroll(8)" in text
    np.testing.assert_allclose(run(c, [a, b], x, y, schedule=schedule), np.outer(x, y), rtol=1e-6)


def test_loops_that_depend_on_others_start_and_end_with_them(rng):
    @script
    def upper(a, b):
        c = output_tensor((10, 10), "float32")
        for i in range(10):
            for j in range(i, 10, 1):
                c[i, j] = a[i] * b[j]
        return c

    a, b = vectors(10, 10)
    x, y = rng.random((2, 10), "float32")
    c = upper(a, b)
    schedule = cte.create_schedule(c.op)
    i, j = loops_of(c.op)
    schedule[c].split(j, 3)
    found = run(c, [a, b], x, y, schedule=schedule)
    np.testing.assert_allclose(found, np.triu(np.outer(x, y)), rtol=1e-6)
    np.testing.assert_allclose(upper(x, y), found, rtol=1e-6)

    schedule = cte.create_schedule(c.op)
    schedule[c].reorder(j, i)
    with pytest.raises(ScheduleError, match="the length of j depends on i"):
        cte.lower(schedule, [a, b, c])


def test_variables_conditions_steps_and_several_outputs(rng):
    half = 0.5

    @script
    def mixed(a):
        low = output_tensor((9,), "float32")
        high = output_tensor((9,), "int32")
        for i in range(0, 9, 2):
            total = 0.0
            for _ in range(3):
                total += a[i] * half
            if 0 <= i < 4 or i == 8:
                picked = total
            elif not (i == 6 and i > 0):
                picked = total + 1
            else:
                picked = -total
            low[i] = picked
        for i in vectorize(9):
            high[i] = int32(a[i] * 10.0) if i % 2 == 0 else i // 2
        return low, high

    (a,) = vectors(9)
    x = rng.random(9, "float32")
    low, high = mixed(a)
    for found, expected in zip(run([low, high], [a], x), mixed(x)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_lists_are_constants_and_tensors(rng):
    weights = [[1, 2], [3, 4]]

    @script
    def weighted(inputs, scale):
        out = output_tensor((4,), inputs[0].dtype)
        for i in range(4):
            total = 0.0
            for j in const_range(len(inputs)):
                for k in const_range(len(weights[0])):
                    total += inputs[j][i] * weights[j][k] * scale[j]
            out[i] = total
        return out

    a, b = vectors(4, 4)
    x, y = rng.random((2, 4), "float32")
    out = weighted(tvm.runtime.convert([a, b]), [2, 3])
    assert [each.op.name for each in out.op.inputs] == ["a", "b"]
    np.testing.assert_allclose(run(out, [a, b], x, y), x * 6 + y * 21, rtol=1e-6)
    np.testing.assert_allclose(weighted([x, y], [2, 3]), x * 6 + y * 21, rtol=1e-6)


def test_math_and_casts(rng):
    @script
    def all_of(a):
        b = output_tensor((9,), "float32")
        b[0] = sqrt(a[0])
        b[1] = log(a[1])
        b[2] = exp(a[2])
        b[3] = sigmoid(a[3])
        b[4] = power(a[4], a[5])
        b[5] = tanh(a[5])
        b[6] = min(a[4], a[5], a[6])
        b[7] = max(a[5], a[6])
        b[8] = float32(popcount(int32(a[8])))
        return b

    (a,) = vectors(9)
    x = np.arange(2, 11).astype("float32")
    np.testing.assert_allclose(run(all_of(a), [a], x), all_of(x), rtol=1e-5)


def test_arrays_of_its_own_and_calls_of_others(rng):
    @script
    def blurred(a):
        rows = allocate((3, 4), "float32", "local")
        b = output_tensor((4, 4), "float32")
        for i in range(4):
            for j in range(3):
                for k in range(4):
                    rows[j, k] = a[i + j, k] + a[i + j, k + 1]
            for j in range(4):
                b[i, j] = (rows[0, j] + rows[1, j] + rows[2, j]) / 6.0
        return b

    @script
    def whole(a, x):
        blur = blurred(a)
        outer = outer_product(4, 4, x, x)
        out = output_tensor(blur.shape, blur.dtype)
        for i in range(4):
            for j in range(4):
                out[i, j] = blur[i, j] + outer[i, j]
        return out

    a, x = te.placeholder((6, 5), name="a"), te.placeholder((4,), name="x")
    values = rng.random((6, 5), "float32"), rng.random(4, "float32")
    windows = np.lib.stride_tricks.sliding_window_view(values[0], (3, 2)).mean((2, 3))
    expected = windows + np.outer(values[1], values[1])
    np.testing.assert_allclose(run(whole(a, x), [a, x], *values), expected, rtol=1e-5)
    np.testing.assert_allclose(whole(*values), expected, rtol=1e-5)


def test_it_stands_between_computes(rng):
    @script
    def scaled(a):
        b = output_tensor(a.shape, a.dtype)
        for i in range(a.shape[0]):
            b[i] = a[i] * i
        return b

    a, b = vectors(20, 20)
    total = te.compute((20,), lambda i: a[i] + b[i], name="total")
    made = scaled(total)
    out = te.compute((20,), lambda i: made[i] + 1.0, name="out")
    x, y = rng.random((2, 20), "float32")
    found = run(out, [a, b], x, y, schedule=cte.create_schedule(out.op))
    np.testing.assert_allclose(found, (x + y) * np.arange(20) + 1, rtol=1e-5)


def test_threads_are_around_the_whole_and_have_one_number():
    @script
    def shared_sum(a, b):
        c = output_tensor((64,), "float32")
        shared = allocate((64,), "float32", "shared")
        for i in bind("threadIdx.x", 64):
            shared[i] = a[i]
        for i in bind("threadIdx.x", 64):
            c[i] = shared[63 - i] + b[i]
        return c

    @script
    def unequal(a):
        c = output_tensor((64,), "float32")
        for i in bind("threadIdx.x", 64):
            c[i] = a[i]
        for i in bind("threadIdx.x", 32):
            c[i] = a[i]
        return c

    a, b = vectors(64, 64)
    c = shared_sum(a, b)
    text = str(cte.lower(cte.create_schedule(c.op), [a, b, c], simple_mode=True))
    assert text.count("launch_thread") == 1 and "alloc_shared" in text
    with pytest.raises(ScheduleError, match="has 64 threads already"):
        unequal(a)


def test_a_schedule_becomes_a_text_that_is_read_back(rng, tmp_path):
    a, b = vectors(8, 6)
    c = outer_product(8, 6, a, b)
    schedule = cte.create_schedule(c.op)
    i, _ = loops_of(c.op)
    outer, _ = schedule[c].split(i, 3)
    schedule[c].parallel(outer)
    cte.hybrid.build(schedule, [a, b], [c], name="made").save(str(tmp_path / "made"))
    read = HybridModule()
    read.load(str(tmp_path / "made.py"))
    assert read.name == "made" and "in parallel(3)" in read.get_source()
    x, y = rng.random(8, "float32"), rng.random(6, "float32")
    np.testing.assert_allclose(read(x, y), np.outer(x, y), rtol=1e-6)
    np.testing.assert_allclose(run(read(a, b), [a, b], x, y), np.outer(x, y), rtol=1e-6)


def test_computes_and_reductions_become_text_too(rng):
    a = te.placeholder((4, 5), name="a")
    k = te.reduce_axis((0, 5), name="k")
    exps = te.compute((4, 5), lambda i, j: te.exp(a[i, j]), name="exps")
    out = te.compute((4,), lambda i: te.max(exps[i, k], axis=k), name="out")
    x = rng.random((4, 5), "float32")
    module = cte.hybrid.build(cte.create_schedule(out.op), [a], [out])
    np.testing.assert_allclose(module(x), np.exp(x).max(1), rtol=1e-5)


def test_text_of_a_file_is_not_run(tmp_path):
    (tmp_path / "bad.py").write_text(
        "def bad(a):\n    c = output_tensor((1,), 'float32')\n"
        "    c[0] = __import__('os').getpid()\n    return c\n"
    )
    module = HybridModule()
    module.load(str(tmp_path / "bad.py"))
    with pytest.raises(ScheduleError, match=r"text:3: .*plain names"):
        module(np.zeros(1, "float32"))


@script
def _while(a):
    c = output_tensor((4,), "float32")
    while True:
        c[0] = a[0]
    return c


@script
def _out_of_scope(a):
    c = output_tensor((4,), "float32")
    for i in range(4):
        x = a[i]
    c[0] = x
    return c


@script
def _not_returned(a):
    c = output_tensor((4,), "float32")
    d = output_tensor((4,), "float32")
    d[0] = a[0]
    c[0] = a[0]
    return c


@script
def _varying_unroll(a, n):
    c = output_tensor((4,), "float32")
    for i in const_range(n):
        c[i] = a[i]
    return c


@script
def _dimensions(a):
    c = output_tensor((4,), "float32")
    c[0] = a[0, 1]
    return c


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_while, r"_while, test_hybrid.py:\d+: While is no part"),
        (_out_of_scope, r"test_hybrid.py:\d+: x is not defined here"),
        (_not_returned, "tensor d is not returned"),
        (_dimensions, "a has 1 dimensions, not 2"),
    ],
)
def test_what_is_no_part_of_the_language_is_refused(function, message):
    (a,) = vectors(4)
    with pytest.raises(ScheduleError, match=message):
        function(a)


def test_const_range_needs_constants():
    (a,) = vectors(4)
    with pytest.raises(ScheduleError, match="const_range needs constants"):
        _varying_unroll(a, te.var("n"))


def test_loops_beside_one_another_are_not_fused():
    @script
    def two(a):
        c = output_tensor((4,), "float32")
        for i in range(4):
            c[i] = a[i]
        for j in range(4):
            c[j] = c[j] + 1.0
        return c

    (a,) = vectors(4)
    c = two(a)
    schedule = cte.create_schedule(c.op)
    schedule[c].fuse(*loops_of(c.op))
    with pytest.raises(ScheduleError, match="i and j do not lie directly in one another"):
        cte.lower(schedule, [a, c])
