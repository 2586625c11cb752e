"""Relay's operators as computes of TE."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from compiler import relay
from compiler.errors import ScheduleError
from compiler.legacy.te import topi
from compiler.legacy.te.driver import build
from compiler.legacy.te.relay_computes import compute


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def run(outs, inputs, *arrays):
    """The arrays that a schedule of `outs` makes of others."""
    library = build(topi.schedule_outputs(outs), [*inputs, *outs], "llvm")
    results = [
        tvm.runtime.tensor(np.zeros([int(extent) for extent in out.shape], str(out.dtype)))
        for out in outs
    ]
    library(*map(tvm.runtime.tensor, arrays), *results)
    return [each.numpy() for each in results]


def test_several_kernels_one_behind_the_other(rng):
    data = rng.integers(0, 20, 50).astype("int32")
    x = te.placeholder((50,), "int32", name="x")
    outs = compute(relay.unique, x, True, True)
    values, first, inverse, count, counts = run(outs, [x], data)
    expected = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    size = int(count[0])
    for found, wanted in zip((values[:size], first[:size], inverse, counts[:size]), expected):
        np.testing.assert_array_equal(found, wanted)


def test_a_compute_stands_among_others(rng):
    x, y = (te.placeholder((4, 6), name=name) for name in "xy")
    doubled = te.compute((4, 6), lambda *place: x(*place) * 2.0, name="doubled")
    made = compute(lambda a, b: relay.nn.softmax(relay.add(a, b)), doubled, y)
    out = te.compute((4, 6), lambda *place: made(*place) + 1.0, name="out")
    one, two = (rng.standard_normal((4, 6)).astype("float32") for _ in "ab")
    (found,) = run([out], [x, y], one, two)
    powers = np.exp(one * 2 + two - (one * 2 + two).max(1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True) + 1, rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        np.full((2, 3), 7),
        np.broadcast_to(np.arange(500), (2, 500)),
        np.array([[3, 1, 4], [1, 5, 9]]),
    ],
)
def test_constants_of_an_operator(values):
    values = np.ascontiguousarray(values.astype("int32"))
    x = te.placeholder(values.shape, "int32", name="x")
    out = compute(lambda a: relay.add(a, relay.const(values)), x)
    (found,) = run([out], [x], np.ones(values.shape, "int32"))
    np.testing.assert_array_equal(found, values + 1)


def test_what_has_no_form_is_refused(rng):
    x = te.placeholder((100,), name="x")
    weight = relay.const(rng.standard_normal(100).astype("float32"))
    with pytest.raises(ScheduleError, match="100 different numbers"):
        compute(lambda a: relay.add(a, weight), x)
    with pytest.raises(ScheduleError, match="no kernel of TE"):
        compute(relay.argwhere, x)
