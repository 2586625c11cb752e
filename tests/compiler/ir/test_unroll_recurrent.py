"""Tests of recurrent layers that are taken apart into their steps."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.ir.unroll_recurrent import unroll_recurrent
from compiler.relay.op.nn.recurrent import recurrent

LENGTH, BATCH, HIDDEN = 3, 2, 5


def layer(cell, backward):
    """A module of one layer, and the shapes of its operands."""
    gates = {"lstm": 4, "gru": 3}.get(cell, 1)
    shapes = [
        (LENGTH, BATCH, gates * HIDDEN),
        (HIDDEN, gates * HIDDEN),
        (BATCH, HIDDEN),
        *([(BATCH, HIDDEN)] if cell == "lstm" else []),
        *([(HIDDEN,)] if cell == "gru" else []),
    ]
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"p{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(recurrent(*params, cell=cell, backward=backward))
        builder.emit_func_output(out)
    return builder.get(), shapes


def run(mod, arrays):
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in arrays))
    return [part.numpy() for part in ([result] if hasattr(result, "numpy") else result)]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_the_steps_compute_what_the_layer_does(cell, backward, rng):
    mod, shapes = layer(cell, backward)
    unrolled = unroll_recurrent(mod, "main")
    assert "nn.recurrent" not in str(unrolled)
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    for found, wanted in zip(run(unrolled, arrays), run(mod, arrays), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_function_without_such_layers_stays_the_same():
    mod = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    with mod.function("main", [x]):
        with mod.dataflow():
            out = mod.emit_output(relax.op.tanh(x))
        mod.emit_func_output(out)
    module = mod.get()
    assert unroll_recurrent(module, "main") is module
