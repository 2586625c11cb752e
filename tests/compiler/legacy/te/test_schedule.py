"""TE schedules compute what was declared, whatever the schedule."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import te, tirx

import compiler.legacy.te as cte
from compiler.errors import ScheduleError


def run(schedule, args, *arrays, out_shape=None, dtype="float32"):
    """Build for this CPU, run, and give the last argument."""
    function = cte.build(schedule, args, "llvm", name="kernel")
    shape = out_shape or [int(extent) for extent in args[-1].shape]
    out = tvm.runtime.tensor(np.full(shape, np.nan if dtype == "float32" else -1, dtype))
    function(*(tvm.runtime.tensor(array) for array in arrays), out)
    return out.numpy()


def matmul(n, m, depth):
    a = te.placeholder((n, depth), name="A")
    b = te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    scaled = te.compute((n, depth), lambda i, j: a[i, j] * 2.0, name="scaled")
    c = te.compute((n, m), lambda i, j: te.sum(scaled[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + 1.0, name="D")
    return [a, b, d], [scaled, c], d


def stencil(n, m, depth):
    a = te.placeholder((n, depth), name="A")
    b = te.placeholder((depth, m), name="B")
    padded = te.compute(
        (n + 2, depth),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < n + 1), a[i - 1, j], 0.0),
        name="padded",
    )
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((n, depth), lambda i, j: te.sum(padded[i + k, j], axis=k), name="C")
    d = te.compute((n, depth), lambda i, j: c[i, j] * 2.0 + padded[i + 1, j], name="D")
    return [a, b, d], [padded, c], d


def chain(n, m, depth):
    a = te.placeholder((n, depth), name="A")
    b = te.placeholder((depth, m), name="B")
    x = te.compute((depth, n), lambda i, j: a[j, i] + 1.0, name="X")
    y = te.compute((depth, n), lambda i, j: x[i, j] * x[i, n - 1 - j], name="Y")
    r = te.reduce_axis((0, depth), "r")
    top = te.compute((n,), lambda j: te.max(y[r, j], axis=r), name="top")
    d = te.compute((n, depth), lambda i, j: y[j, i] - top[i], name="D")
    return [a, b, d], [x, y, top], d


def expected(graph, a, b):
    a, b = a.astype("float64"), b.astype("float64")
    if graph is matmul:
        return 2 * a @ b + 1
    if graph is stencil:
        p = np.pad(a, ((1, 1), (0, 0)))
        return (p[:-2] + p[1:-1] + p[2:]) * 2 + p[1:-1]
    x = a.T + 1
    y = x * x[:, ::-1]
    return (y - y.max(0)).T


def change_loops(rng, stage, steps):
    """Random splits, fusions and orders; then marks that fit."""
    for _ in range(steps):
        leaves = list(stage.leaf_iter_vars)
        kind = rng.choice(["factor", "nparts", "fuse", "reorder"])
        if kind in ("factor", "nparts"):
            stage.split(rng.choice(leaves), **{kind: rng.randint(1, 7)})
        elif kind == "fuse" and len(leaves) > 1:
            at = rng.randrange(len(leaves) - 1)
            if leaves[at].iter_type == leaves[at + 1].iter_type:
                stage.fuse(leaves[at], leaves[at + 1])
        else:
            rng.shuffle(leaves)
            stage.reorder(*leaves)
    for leaf in stage.leaf_iter_vars:
        if rng.random() < 0.15:
            stage.unroll(leaf)
    last = stage.leaf_iter_vars[-1]
    if rng.random() < 0.3 and last.iter_type == 0:
        stage.vectorize(last)


def random_schedule(rng, args, stages, out):
    s = cte.create_schedule(out.op)
    consumers = [out]
    if rng.random() < 0.5:
        change_loops(rng, s[out], rng.randint(0, 4))
    if rng.random() < 0.4:
        cached = s.cache_write(out, rng.choice(["global", "local"]))
        change_loops(rng, s[out], rng.randint(0, 4))
        if rng.random() < 0.8:
            s[cached].compute_at(s[out], rng.choice(s[out].leaf_iter_vars))
        change_loops(rng, s[cached], rng.randint(0, 4))
        consumers = [cached]
    for tensor in reversed(stages):
        is_reduction = isinstance(tensor.op.body[0], tirx.Reduce)
        if not is_reduction and rng.random() < 0.25:
            s[tensor].compute_inline()
            continue
        if is_reduction and rng.random() < 0.3:
            _, inner = s[tensor].split(s[tensor].op.reduce_axis[0], rng.randint(1, 5))
            partial = s.rfactor(tensor, inner, rng.choice([0, -1]))
            s[partial].compute_at(s[tensor], rng.choice(s[tensor].leaf_iter_vars))
        if rng.random() < 0.6:
            reader = s[rng.choice(consumers)]
            s[tensor].compute_at(reader, rng.choice(reader.leaf_iter_vars))
        change_loops(rng, s[tensor], rng.randint(0, 4))
        consumers.append(tensor)
    return s


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    graph=st.sampled_from([matmul, stencil, chain]),
    sizes=st.tuples(*(st.integers(1, 18) for _ in range(3))),
    seed=st.integers(0, 2**32),
)
def test_a_random_schedule_is_right_or_refused_by_name(graph, sizes, seed):
    args, stages, out = graph(*sizes)
    rng = random.Random(seed)
    values = np.random.default_rng(seed % 1000)
    a = values.random((sizes[0], sizes[2]), "float32")
    b = values.random((sizes[2], sizes[1]), "float32")
    schedule = random_schedule(rng, args, stages, out)
    try:
        found = run(schedule, args, a, b)
    except ScheduleError as error:
        assert "of stage" in str(error)
        return
    np.testing.assert_allclose(found, expected(graph, a, b), rtol=2e-4, atol=1e-4)


def test_loops_print_as_they_were_scheduled():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=32)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    text = cte.lower(s, [a, c], simple_mode=True).script()
    assert "T.parallel((n + 31) // 32)" in text
    assert "T.vectorized(32)" in text
    assert "T.likely(i_outer * 32 + i_inner < n)" in text


def test_a_split_without_predication_runs_past_the_end_of_its_loop():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = cte.create_schedule(c.op)
    s[c].split(c.op.axis[0], factor=32, disable_predication=True)
    assert "likely" not in cte.lower(s, [a, c], simple_mode=True).script()
    values = np.random.rand(64).astype("float32")
    np.testing.assert_allclose(run(s, [a, c], values, out_shape=(64,)), values + 1)


def test_a_symbolic_extent_is_read_from_the_arguments():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = cte.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[0], factor=32)
    s[c].vectorize(inner)
    for size in (1, 32, 100):
        values = np.random.rand(size).astype("float32")
        np.testing.assert_allclose(run(s, [a, c], values, out_shape=(size,)), values + 1)


@pytest.mark.parametrize("inlines", [False, True])
def test_a_symbolic_extent_of_one_is_read_again_and_again(inlines):
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n,), name="A"), te.placeholder((m,), name="B")
    doubled = te.compute((n,), lambda i: a[i] * 2.0, name="doubled")
    added = te.compute((te.max(n, m),), lambda i: doubled[i] + b[i], name="added")
    schedule = cte.create_schedule(added.op)
    if inlines:
        schedule[doubled].compute_inline()
    for left, right in ((1, 5), (5, 1), (5, 5)):
        x, y = np.arange(left, dtype="float32"), np.arange(10, 10 + right, dtype="float32")
        found = run(schedule, [a, b, added], x, y, out_shape=[5])
        np.testing.assert_array_equal(found, x * 2 + y)


def test_a_reduction_of_two_values_keeps_them_together():
    def combine(x, y):
        is_left = x[1] >= y[1]
        return te.if_then_else(is_left, x[0], y[0]), te.if_then_else(is_left, x[1], y[1])

    argmax = te.comm_reducer(
        combine, lambda index, value: (tirx.const(-1, index), te.min_value(value)), name="argmax"
    )
    a = te.placeholder((7, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    index, value = te.compute((7,), lambda i: argmax((k.var, a[i, k]), axis=k), name="T")
    s = cte.create_schedule(index.op)
    s[index].split(s[index].op.reduce_axis[0], 4)
    values = np.random.rand(7, 9).astype("float32")
    function = cte.build(s, [a, index, value], "llvm")
    outs = tvm.runtime.empty((7,), "int32"), tvm.runtime.empty((7,), "float32")
    function(tvm.runtime.tensor(values), *outs)
    assert (outs[0].numpy() == values.argmax(1)).all()
    np.testing.assert_array_equal(outs[1].numpy(), values.max(1))


def test_a_scan_computes_each_step_from_the_one_before():
    x = te.placeholder((6, 5), name="X")
    state = te.placeholder((6, 5))
    start = te.compute((1, 5), lambda _, i: x[0, i], name="start")
    doubled = te.compute((6, 5), lambda t, i: state[t - 1, i] * 2.0, name="doubled")
    update = te.compute((6, 5), lambda t, i: doubled[t, i] + x[t, i], name="update")
    out = te.scan(start, update, state, inputs=[x])
    s = cte.create_schedule(out.op)
    outer, _ = s[update].split(update.op.axis[1], 2)
    s[doubled].compute_at(s[update], outer)
    values = np.random.rand(6, 5).astype("float32")
    right = values.copy()
    for step in range(1, 6):
        right[step] += 2 * right[step - 1]
    np.testing.assert_allclose(run(s, [x, out], values), right, rtol=1e-6)


def test_an_external_operation_gets_the_buffers_of_its_tensors():
    a = te.placeholder((4, 5), name="A")

    def body(ins, outs):
        i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
        store = tirx.BufferStore(outs[0], tirx.BufferLoad(ins[0], [i, j]) * 3.0, [i, j])
        inner = tirx.For(j, 0, 5, tirx.ForKind.SERIAL, store)
        return tirx.For(i, 0, 4, tirx.ForKind.SERIAL, inner)

    b = te.compute((4, 5), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.extern((4, 5), [b], body, name="C", dtype="float32")
    d = te.compute((4, 5), lambda i, j: c[i, j] - 1.0, name="D")
    s = cte.create_schedule(d.op)
    values = np.random.rand(4, 5).astype("float32")
    np.testing.assert_allclose(run(s, [a, d], values), (values + 1) * 3 - 1, rtol=1e-6)


def test_cache_read_is_filled_where_its_reader_needs_it():
    args, _, out = matmul(12, 10, 8)
    _, b, _ = args
    s = cte.create_schedule(out.op)
    c = s.stages[3].op.output(0)
    cached = s.cache_read(b, "global", [c])
    outer, _ = s[c].split(s[c].op.axis[1], 4)
    s[cached].compute_at(s[c], outer)
    text = cte.lower(s, args, simple_mode=True).script()
    assert "B_global = T.alloc_buffer((8, 4))" in text
    values = [np.random.rand(12, 8).astype("float32"), np.random.rand(8, 10).astype("float32")]
    np.testing.assert_allclose(run(s, args, *values), 2 * values[0] @ values[1] + 1, rtol=1e-5)


def test_storage_align_pads_a_row():
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 8), lambda i, j: b[j, i] * 2.0, name="C")
    s = cte.create_schedule(c.op)
    s[b].storage_align(b.op.axis[0], 32, 5)
    assert "i * 37 + j" in cte.lower(s, [a, c], simple_mode=True).script()
    values = np.random.rand(8, 6).astype("float32")
    np.testing.assert_allclose(run(s, [a, c], values), (values.T + 1) * 2, rtol=1e-6)


def test_stages_of_a_group_are_computed_in_one_loop():
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((16,), lambda i: b[i] * 2.0, name="C")
    d = te.compute((16,), lambda i: c[i] - 3.0, name="D")
    s = cte.create_schedule(d.op)
    outer, _ = s[d].split(d.op.axis[0], 4)
    group = s.create_group(outputs=c, inputs=a)
    group.compute_at(s[d], outer)
    text = cte.lower(s, [a, d], simple_mode=True).script()
    assert text.count("T.alloc_buffer((4,))") == 2
    values = np.random.rand(16).astype("float32")
    np.testing.assert_allclose(run(s, [a, d], values), (values + 1) * 2 - 3, rtol=1e-6)


def test_cache_write_after_a_split_packs_the_cache():
    a = te.placeholder((12,), name="A")
    c = te.compute((12,), lambda i: a[i] * 2.0, name="C")
    s = cte.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], 4)
    s[c].reorder(inner, outer)
    cached = s.cache_write(c, "global")
    assert [int(extent) for extent in cached.shape] == [4, 3]
    values = np.random.rand(12).astype("float32")
    np.testing.assert_allclose(run(s, [a, c], values), values * 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s, c: s[c].split(te.reduce_axis((0, 3)), 2), "split of stage C: rv is not a loop"),
        (lambda s, c: s[c].split(c.op.axis[0]), "split of stage C: either factor or nparts"),
        (lambda s, c: s[c].vectorize(c.op.reduce_axis[0]), "vectorize of stage C"),
        (lambda s, c: s[c].fuse(c.op.axis[0], c.op.reduce_axis[0]), "do not follow each other"),
        (lambda s, c: s[c].compute_at(s[c], c.op.axis[0]), "compute_at of stage C"),
        (lambda s, c: s[c].rolling_buffer(), "rolling_buffer of stage C"),
        (lambda s, c: s[c].bind(c.op.axis[0], c.op.axis[1]), "bind of stage C"),
        (lambda s, c: s.rfactor(c, c.op.axis[0]), "rfactor of stage C: i is not a reduction"),
        (lambda s, c: s[te.placeholder((2,), name="Z")], "Z is not in this schedule"),
    ],
)
def test_what_does_not_fit_names_primitive_and_stage(change, words):
    _, stages, _ = matmul(4, 5, 6)
    c = stages[1]
    s = cte.create_schedule(c.op)
    with pytest.raises(ScheduleError, match=words):
        change(s, c)


def test_a_prefetch_is_a_hint_that_the_log_says_nobody_takes(caplog):
    args, stages, out = matmul(4, 5, 6)
    s = cte.create_schedule(out.op)
    s[out].prefetch(stages[0], out.op.axis[0], 1)
    assert "prefetch of scaled in stage D has no effect" in caplog.text
    assert cte.lower(s, args)


def test_a_producer_outside_of_its_reader_is_refused():
    args, stages, out = matmul(4, 5, 6)
    scaled = stages[0]
    s = cte.create_schedule(out.op)
    s[scaled].compute_at(s[out], out.op.axis[0])
    with pytest.raises(ScheduleError, match="compute_at of stage scaled: C, which reads it"):
        cte.lower(s, args)


def test_inlining_all_that_is_injective_leaves_reductions_and_outputs():
    from compiler.legacy.te.schedule import AutoInlineInjective

    args, _, out = matmul(4, 5, 6)
    s = cte.create_schedule(out.op)
    AutoInlineInjective(s)
    text = cte.lower(s, args, simple_mode=True).script()
    assert "scaled" not in text and "C = T.alloc_buffer((4, 5))" in text


def test_parallel_loops_inside_of_parallel_loops_run_one_after_the_other():
    a = te.placeholder((6, 5), name="A")
    b = te.compute((6, 5), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 5), lambda i, j: b[i, j] * 2.0, name="C")
    s = cte.create_schedule(c.op)
    s[c].parallel(c.op.axis[0])
    s[c].parallel(c.op.axis[1])
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].parallel(b.op.axis[1])
    text = cte.lower(s, [a, c], simple_mode=True).script()
    assert text.count("T.parallel(6)") == 1 and "T.parallel(5)" not in text
    values = np.random.default_rng(0).random((6, 5), "float32")
    out = tvm.runtime.empty((6, 5), "float32")
    cte.build(s, [a, c], "llvm")(tvm.runtime.tensor(values), out)
    np.testing.assert_allclose(out.numpy(), (values + 1) * 2, rtol=1e-6)


def test_a_pragma_links_llvm_code_that_the_loops_call():
    code = "define float @baton_twice(float %x) {\n  %y = fadd float %x, %x\n  ret float %y\n}\n"
    a = te.placeholder((6,), name="A")
    c = te.compute((6,), lambda i: tirx.call_pure_extern("float32", "baton_twice", a[i]), name="C")
    s = cte.create_schedule(c.op)
    s[c].pragma(c.op.axis[0], "import_llvm", code)
    out = tvm.runtime.empty((6,), "float32")
    values = np.arange(6, dtype="float32")
    cte.build(s, [a, c], "llvm")(tvm.runtime.tensor(values), out)
    np.testing.assert_array_equal(out.numpy(), 2 * values)
    assert [str(key.value) for key in s[c].iter_var_attrs[c.op.axis[0]].pragma_keys] == [
        "import_llvm"
    ]


@pytest.mark.parametrize("change", ["split", "fuse"])
def test_a_place_follows_its_loop_through_splits_and_fusions(change):
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 8), lambda i, j: b[i, j] * 2.0, name="C")
    s = cte.create_schedule(c.op)
    i, j = c.op.axis
    s[b].compute_at(s[c], j)
    if change == "split":
        s[c].split(j, factor=3)
    else:
        s[c].fuse(i, j)
    values = np.random.default_rng(0).random((6, 8), dtype="float32")
    np.testing.assert_array_equal(run(s, [a, c], values), (values + 1) * 2)
    s = cte.create_schedule(c.op)
    s[b].compute_at(s[c], i)
    s[c].fuse(i, j)
    with pytest.raises(ScheduleError, match="loop i of C was fused later as the outer one"):
        cte.lower(s, [a, c])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("parts", [0, 2])
def test_a_sum_may_be_as_long_as_its_place_says(fused, parts):
    a = te.placeholder((6,), "float32", "a")

    def window(i, j):
        k = te.reduce_axis((0, (i + j) % 3 + 1), "k")
        return te.sum(a[k] * (i + 1), axis=k)

    out = te.compute((4, 5), window, name="out")
    sch = cte.create_schedule(out.op)
    (k,) = sch[out].op.reduce_axis
    if fused:
        sch[out].fuse(*sch[out].op.axis)
    if parts:
        sch[out].split(k, parts)
    values = np.arange(6, dtype="float32") + 1
    expected = [[values[: (i + j) % 3 + 1].sum() * (i + 1) for j in range(5)] for i in range(4)]
    np.testing.assert_allclose(run(sch, [a, out], values), expected)
