"""`te.round` of old scripts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import compiler.legacy.te as cte

HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4, -2.6, 2049, np.inf, -np.inf])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["round", "nearbyint"])
def test_halves_go_away_from_zero_but_with_nearbyint(name, dtype):
    values = HALVES.astype(dtype)
    a = te.placeholder(values.shape, dtype, name="A")
    rounded = te.compute(a.shape, lambda i: getattr(tirx, name)(a[i]), name="rounded")
    out = tvm.runtime.tensor(np.zeros_like(values))
    cte.build(cte.create_schedule(rounded.op), [a, rounded], "llvm")(
        tvm.runtime.tensor(values), out
    )
    away = np.sign(values) * np.floor(np.abs(values) + np.asarray(0.5, dtype))
    whole = np.rint(values) == values  # of which some halves can't be told apart from them
    expected = np.where(whole, values, away) if name == "round" else np.rint(values)
    np.testing.assert_array_equal(out.numpy(), expected)
