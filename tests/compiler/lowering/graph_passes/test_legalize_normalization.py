"""Normalizations of float64, which TVM's computes refuse, keep their digits."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import relay
from compiler.ir.constants import constant
from compiler.runtime import graph_executor

NORM = relax.op.nn


@pytest.mark.parametrize(
    ("operator", "parts", "weights"),
    [
        (lambda x, g, b: NORM.layer_norm(x, g, b, [2, 3], 1e-5), (2, 4, 1, 6), (2, 3)),
        (lambda x, g, b: NORM.instance_norm(x, g, b, 1, [2, 3], 1e-5), (2, 4, 1, 6), (4,)),
        (lambda x, g, b: NORM.group_norm(x, g, b, 2, 1, [2, 3], 1e-5), (2, 2, 2, 6), (4,)),
    ],
    ids=["layer", "instance", "group"],
)
def test_doubles_are_normalized_as_doubles(operator, parts, weights):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 2, 3))
    scale, bias = rng.normal(size=weights), rng.normal(size=weights)
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float64"))
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(operator(data, constant(scale), constant(bias)))
        builder.emit_func_output(result)
    module = graph_executor.GraphModule(relay.build(builder.get(), "llvm")["default"](tvm.cpu()))
    module.run(x=x)

    groups = x.reshape(parts)
    centered = groups - groups.mean((2, 3), keepdims=True)
    normal = centered / np.sqrt((centered**2).mean((2, 3), keepdims=True) + 1e-5)
    along = (1, 4, 1, 1) if weights == (4,) else (1, 1, 2, 3)
    expected = normal.reshape(x.shape) * scale.reshape(along) + bias.reshape(along)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-12, atol=1e-12)
