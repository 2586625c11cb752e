"""Functions that the C library has of scalars alone, on vectors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.runtime import graph_executor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["cosh", "sinh"])
def test_hyperbolic_functions_of_whole_vectors(name, dtype):
    x = relay.var("x", shape=(64,), dtype=dtype)
    doubled = getattr(relay, name)(relay.add(x, x))
    library = relay.build(tvm.IRModule.from_expr(relay.Function([x], doubled)), "llvm")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    values = np.linspace(-3, 3, 64, dtype=dtype)
    module.run(x=values)
    expected = getattr(np, name)(2 * values)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-6)
