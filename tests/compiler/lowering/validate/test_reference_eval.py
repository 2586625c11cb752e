"""Elements of unscheduled functions, evaluated by numpy alone."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from compiler.errors import RecordError
from compiler.lowering.validate.reference_eval import FEWEST, evaluate, places
from compiler.lowering.validate.reference_graph import plan_of

RNG = np.random.default_rng(0)


def values(*shape):
    return RNG.uniform(-1, 1, shape)


def sampled(tensors, *inputs):
    """Indices and values of the sample of the last tensor."""
    plan = plan_of(te.create_prim_func(tensors))
    at = places([int(dim) for dim in tensors[-1].shape])
    return at, evaluate(plan, inputs, {len(inputs): at})[len(inputs)]


def test_a_sample_holds_every_place_along_every_axis_and_the_corners():
    at = places([1, 56, 300, 4000])
    assert FEWEST <= len(at[0]) < 1000
    assert set(at[1]) == set(range(56))
    assert set(at[2]) == set(range(300))
    assert {0, 31, 3968, 3999} <= set(at[3])
    corners = {(a, b, c) for a, b, c in zip(*at[1:]) if a in (0, 55) and b in (0, 299)}
    assert {(0, 0, 0), (55, 299, 3999), (0, 299, 0)} <= corners


def test_a_padded_strided_convolution():
    x, w = te.placeholder((1, 30, 30, 20), name="x"), te.placeholder((3, 3, 20, 24), name="w")
    y = topi.nn.relu(topi.nn.conv(x, w, 2, 1, 1, 1, "NHWC", "HWIO"))
    data, weight = values(1, 30, 30, 20), values(3, 3, 20, 24)
    at, got = sampled([x, w, y], data, weight)
    padded = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    right = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, weight), 0)
    np.testing.assert_allclose(got, right[at], atol=1e-12)


def test_softmax_over_stages_of_other_shapes():
    x = te.placeholder((70, 90), name="x")
    data = values(70, 90)
    at, got = sampled([x, topi.nn.softmax(x)], data)
    exp = np.exp(data)
    np.testing.assert_allclose(got, (exp / exp.sum(-1, keepdims=True))[at], rtol=1e-12)


def test_integers_wrap_as_their_type_does():
    x = te.placeholder((5000,), "uint8", name="x")
    y = te.compute((5000,), lambda i: x[i] * te.const(100, "uint8"))
    data = np.arange(5000).astype("uint8")
    at, got = sampled([x, y], data)
    assert np.array_equal(got, (data * np.uint8(100))[at])


def test_what_a_plan_can_not_hold_is_refused():
    x = te.placeholder((8, 8), name="x")
    with pytest.raises(RecordError):
        plan_of(te.create_prim_func([x, topi.argmax(x, 1)]))
