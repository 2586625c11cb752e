"""Derivatives of computes, against central differences in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx, topi

import compiler.legacy.te as cte
from compiler.errors import ScheduleError
from tests.sweep import examples

_DTYPE = "float64"


def placeholder(*shape, name="x"):
    return te.placeholder(shape, _DTYPE, name=name)


def run(outs, inputs, values):
    """What tensors are for these values of others."""
    library = cte.build(cte.create_schedule([out.op for out in outs]), [*inputs, *outs], "llvm")
    results = [
        tvm.runtime.tensor(np.zeros([int(extent) for extent in out.shape], str(out.dtype)))
        for out in outs
    ]
    library(*map(tvm.runtime.tensor, values), *results)
    return [each.numpy() for each in results]


def check(out, inputs, low=-1.0, high=1.0, others=(), values=(), seed=0):
    """Compare what a small step into a direction changes with what the derivatives say."""
    rng = np.random.default_rng(seed)
    shape = [int(extent) for extent in out.shape]
    head = placeholder(*shape, name="head")
    weights = rng.standard_normal(shape)
    points = [rng.uniform(low, high, [int(n) for n in each.shape]) for each in inputs]
    found = run(
        cte.gradient(out, inputs, head), [*inputs, *others, head], [*points, *values, weights]
    )
    library = cte.build(cte.create_schedule(out.op), [*inputs, *others, out], "llvm")

    def total(at):
        result = tvm.runtime.tensor(np.zeros(shape, _DTYPE))
        library(*map(tvm.runtime.tensor, [*at, *values]), result)
        return float((result.numpy() * weights).sum())

    for index, (point, derivative) in enumerate(zip(points, found)):
        direction, step = rng.standard_normal(point.shape), 1e-6
        moved = [
            total([*points[:index], point + sign * step * direction, *points[index + 1 :]])
            for sign in (1, -1)
        ]
        expected = (moved[0] - moved[1]) / (2 * step)
        scale = np.abs(derivative).sum() + 1e-3
        np.testing.assert_allclose((derivative * direction).sum(), expected, atol=1e-6 * scale)


_OF_ONE = {
    **{name: getattr(te, name) for name in ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "atan")},
    "abs": tirx.abs,
    "cube": lambda x: x * x * x,
    "quotient": lambda x: (x + 0.5) / (x * x + 1.0),
    "piecewise": lambda x: tirx.Select(x > 0.1, x * x, x - 1.0),
    "guarded": lambda x: tirx.if_then_else(x > 0.1, te.exp(x), x),
    "bounds": lambda x: tirx.max(tirx.min(x * 2.0, 1.0 - x), -x),
    "negative": lambda x: -x,
}


@pytest.mark.parametrize("name", sorted(_OF_ONE))
def test_functions_of_one_value(name):
    x = placeholder(4, 5)
    check(te.compute((4, 5), lambda i, j: _OF_ONE[name](x[i, j]), name="y"), [x])


@pytest.mark.parametrize(
    "name", ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tan", "asin", "acos", "sinh"]
)
def test_functions_of_positive_values(name):
    x = placeholder(4, 5)
    out = te.compute((4, 5), lambda i, j: getattr(tirx, name)(x[i, j]), name="y")
    check(out, [x], 0.2, 0.8)


def test_powers():
    x, y = placeholder(4, 5), placeholder(4, 5, name="y")
    out = te.compute((4, 5), lambda i, j: te.power(x[i, j], y[i, j]), name="z")
    check(out, [x, y], 0.2, 2.0)


def test_steps_do_not_change():
    x = placeholder(4)
    out = te.compute((4,), lambda i: te.floor(x[i]) + te.round(x[i]), name="y")
    (found,) = run(cte.gradient(out, x, out), [x], [np.linspace(0.1, 3, 4)])
    assert not found.any()


@examples(12)
@given(
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
)
def test_convolutions(size, kernel, stride, dilation, padding):
    x, w = placeholder(1, 2, *size), placeholder(3, 2, *kernel, name="w")
    check(topi.nn.conv2d(x, w, stride, padding, dilation), [x, w])


@examples(8)
@given(
    reducer=st.sampled_from(["sum", "max", "min", "prod"]),
    rows=st.integers(1, 5),
    columns=st.integers(1, 6),
    start=st.integers(0, 1),
)
def test_reductions_of_every_kind(reducer, rows, columns, start):
    x = placeholder(rows, columns + start)
    k = te.reduce_axis((start, columns + start), name="k")
    prod = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="prod")
    reduce = {"sum": te.sum, "max": te.max, "min": te.min, "prod": prod}[reducer]
    out = te.compute((rows,), lambda i: reduce(x[i, k] * x[i, k] + x[i, k], axis=k), name="y")
    check(out, [x])


@examples(8)
@given(kind=st.sampled_from(["avg", "max"]), kernel=st.integers(1, 3), stride=st.integers(1, 3))
def test_pooling(kind, kernel, stride):
    x = placeholder(1, 2, 6, 6)
    out = topi.nn.pool2d(x, [kernel] * 2, [stride] * 2, [1, 1], [0, 0, 0, 0], kind)
    check(out, [x])


def test_a_network_with_residuals_and_softmax():
    x, w = placeholder(1, 2, 5, 5), placeholder(2, 2, 3, 3, name="w")
    hidden = x + topi.nn.conv2d(topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1)), w, 1, 1, 1)
    check(topi.nn.log_softmax(topi.reshape(hidden, (1, 50))), [x, w])


def test_slices_joins_and_transposes():
    x, y = placeholder(2, 6), placeholder(2, 3, name="y")
    first, second = topi.split(x, 2, 1)
    out = topi.transpose(topi.concatenate((second, y, first), 1))
    check(topi.expand_dims(out, 0), [x, y])


def test_indices_that_are_read_may_meet():
    x, i = placeholder(4, 5), te.placeholder((9,), "int32", name="i")
    places = np.array([0, 3, 3, 19, 7, 7, 7, 2, 11], "int32")
    check(topi.take(x, i), [x], others=[i], values=[places])


def test_indices_that_are_not_linear():
    x = placeholder(10, 10)
    k = te.reduce_axis((0, 10), name="k")
    out = te.compute(
        (10, 10), lambda i, j: te.sum(x[te.min(j + k, 9), j] * x[i, k], axis=k), name="y"
    )
    check(out, [x])


def test_conditions_that_read_stay_inside_of_their_tensors():
    x, w = placeholder(1, 1, 8, 8), placeholder(1, 1, 3, 3, name="w")
    y = topi.nn.conv2d(topi.nn.relu(x), w, 2, 1, 1)
    check(topi.nn.relu(y), [x, w])


def test_sums_with_a_start():
    x = placeholder(5, 5)
    k = te.reduce_axis((0, 5), name="k")
    out = te.compute((5,), lambda i: te.sum(x[i, k] * x[k, i], axis=k, init=x[i, 0]), name="y")
    check(out, [x])


def test_second_derivatives():
    x = placeholder(4, 4)
    k = te.reduce_axis((0, 4), name="k")
    out = te.compute((4,), lambda i: te.sum(te.exp(x[i, k] * x[k, i]), axis=k), name="y")
    ones = te.compute((4,), lambda i: tirx.const(1, _DTYPE), name="ones")
    (first,) = cte.gradient(out, [x], ones)
    check(first, [x])


def test_without_a_head_all_elements_are_differentiated():
    x, w = placeholder(3, 4), placeholder(4, 2, name="w")
    out = topi.nn.matmul(x, w)
    of_x, of_w = cte.gradient(out, [x, w])
    assert [int(n) for n in of_x.shape] == [3, 2, 3, 4]
    assert [int(n) for n in of_w.shape] == [3, 2, 4, 2]
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 4)), rng.random((4, 2))
    found = run([of_x, of_w], [x, w], [a, b])
    np.testing.assert_allclose(found[0], np.einsum("ik,lj->ijkl", np.eye(3), b))
    np.testing.assert_allclose(found[1], np.einsum("il,jm->ijlm", a, np.eye(2)))


def test_results_on_the_way_and_tensors_that_are_no_part():
    x, other = placeholder(4), placeholder(3, name="other")
    middle = te.compute((4,), lambda i: x[i] * x[i], name="middle")
    out = te.compute((4,), lambda i: te.exp(middle[i]) + middle[i], name="y")
    ones = te.compute((4,), lambda i: tirx.const(1, _DTYPE), name="ones")
    grads = cte.gradient(out, [middle, x, other, out], ones)
    values = np.linspace(-1, 1, 4)
    found = run(grads, [x], [values])
    of_middle = np.exp(values**2) + 1
    np.testing.assert_allclose(found[0], of_middle)
    np.testing.assert_allclose(found[1], of_middle * 2 * values)
    assert found[2].shape == (3,) and not found[2].any()
    np.testing.assert_allclose(found[3], 1)


def test_a_sum_runs_over_what_the_indices_leave_free():
    x, w = placeholder(4, 33), placeholder(5, 4, 3, name="w")
    c, k = te.reduce_axis((0, 4), name="c"), te.reduce_axis((0, 3), name="k")
    y = te.compute(
        (5, 16), lambda f, i: te.sum(x[c, i * 2 + k] * w[f, c, k], axis=[c, k]), name="y"
    )
    of_x, of_w = cte.gradient(y, [x, w], y)
    assert [int(axis.dom.extent) for axis in of_x.op.reduce_axis] == [5, 3]
    assert [int(axis.dom.extent) for axis in of_w.op.reduce_axis] == [16]


def test_what_has_no_derivative_is_refused_by_name():
    x, k = placeholder(4), te.reduce_axis((0, 4), name="k")
    doubled = te.extern(
        (4,), [x], lambda i, o: tirx.call_packed("double", i[0], o[0]), name="foreign"
    )
    with pytest.raises(ScheduleError, match="foreign is not a te"):
        cte.gradient(doubled, x, doubled)
    unknown = te.compute((4,), lambda i: tirx.call_pure_extern(_DTYPE, "lgamma", x[i]), name="y")
    with pytest.raises(ScheduleError, match=r"derivative of T\.call_pure"):
        cte.gradient(unknown, x, unknown)
    prod = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="prod")
    started = te.compute((1,), lambda i: prod(x[k], axis=k, init=x[i]), name="started")
    with pytest.raises(ScheduleError, match="started is a reduction with init"):
        cte.gradient(started, x, started)
    with pytest.raises(ScheduleError, match="head has 0 dimensions, and the output 1"):
        cte.gradient(unknown, x, te.compute((), lambda *_: tirx.const(1, _DTYPE)))
