"""What searches are tried on: a small product, a CPU, and whether what they need is installed."""

from __future__ import annotations

import importlib.util

import pytest
from tvm import te

from compiler import target as targets

needs_tune = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("cloudpickle", "psutil", "xgboost"))),
    reason="the extra 'tune' is not installed",
)
CPU = targets.parse("llvm -mcpu=x86-64-v3 -num-cores=2")


def matmul(n, m, k):
    """(n, k) times (k, m), a workload to be registered."""
    x, w = te.placeholder((n, k), name="x"), te.placeholder((k, m), name="w")
    axis = te.reduce_axis((0, k), name="k")
    return [x, w, te.compute((n, m), lambda i, j: te.sum(x[i, axis] * w[axis, j], axis=axis))]
