"""Reductions over no elements in kernels without a schedule."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.tvm_workarounds.empty_reductions import PIPELINE

CALLS = {
    "sum": (lambda x: relax.op.sum(x), lambda x: x.sum()),
    "product": (lambda x: relax.op.prod(x, axis=0), lambda x: x.prod(axis=0)),
    "fused": (
        lambda x: relax.op.exp(relax.op.sum(relax.op.negative(x), axis=[0])),
        lambda x: np.exp(-x.sum(axis=0)),
    ),
    "matmul": (lambda x: relax.op.matmul(relax.op.permute_dims(x), x), lambda x: x.T @ x),
}
calls = pytest.mark.parametrize(("call", "expected"), CALLS.values(), ids=CALLS)


def results(call, pipeline):
    """Results of a function of (n, 3) float32 for 2 rows, then for none."""
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(call(x)))
        builder.emit_func_output(result)
    target = tvm.target.Target({"kind": "llvm"})
    executable = tvm.compile(builder.get(), target=target, tir_pipeline=pipeline)
    run = relax.VirtualMachine(executable, tvm.cpu())["main"]
    given = np.array([[1, 2, 3], [0.5, 1, -1]], "float32"), np.zeros((0, 3), "float32")
    return [(x, run(tvm.runtime.tensor(x)).numpy()) for x in given]


@calls
def test_the_result_over_no_elements_is_the_initial_value(call, expected):
    for x, found in results(call, PIPELINE):
        np.testing.assert_allclose(found, expected(x), rtol=1e-6)


def test_tvm_initializes_in_the_first_step_alone():
    found = results(CALLS["product"][0], "default")
    assert not np.array_equal(found[1][1], [1, 1, 1])
