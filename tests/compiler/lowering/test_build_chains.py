"""Fused functions of many operators: whatever fuses, `relay.build` computes what numpy does."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from compiler import relay
from compiler.runtime import graph_executor
from tests.sweep import examples

from .chains import Chain


def run(mod, inputs, opt_level=3, target="llvm"):
    with tvm.transform.PassContext(opt_level=opt_level):
        module = graph_executor.GraphModule(relay.build(mod, target)["default"](tvm.cpu()))
    module.run(**inputs)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


@examples(10)
@given(st.integers(0, 2**16), st.integers(2, 12), st.sampled_from([2, 3]))
def test_random_chains_of_operators_compute_what_numpy_computes(seed, steps, opt_level):
    chain = Chain(Random(seed), steps)
    for got, want in zip(run(chain.mod, chain.inputs, opt_level), chain.expected, strict=True):
        assert got.shape == want.shape, chain.operators
        tolerance = 2e-4 * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, 2e-4, tolerance, err_msg=str(chain.operators))


def rotary(emit, x, cos, sin):
    heads = emit(op.split(op.reshape(x, (2, 3, 4, 8)), 2, 3))
    a, b = (emit(relax.TupleGetItem(heads, i)) for i in (0, 1))
    c, s = op.reshape(cos, (2, 3, 1, 4)), op.reshape(sin, (2, 3, 1, 4))
    first = op.subtract(op.multiply(c, a), op.multiply(s, b))
    second = op.add(op.multiply(s, a), op.multiply(c, b))
    return op.reshape(op.concat([first, second], -1), (2, 3, 32))


def rotary_in_numpy(x, cos, sin):
    a, b = np.split(x.reshape(2, 3, 4, 8), 2, -1)
    c, s = cos[:, :, None], sin[:, :, None]
    return np.concatenate([c * a - s * b, s * a + c * b], -1).reshape(2, 3, 32)


CASES = {
    "rotary embedding: quotients, remainders and conditions in one loop": (
        rotary, rotary_in_numpy, (2, 3, 32), (2, 3, 4), (2, 3, 4)),
    "flip of a repeat: an index that falls": (
        lambda emit, x: op.flip(op.repeat(x, 2, 0), 0),
        lambda x: np.flip(x.repeat(2, 0), 0), (6,)),
    "flip of a tile of a repeat": (
        lambda emit, x: op.flip(op.tile(op.repeat(x, 3, 0), [2]), 0),
        lambda x: np.flip(np.tile(x.repeat(3, 0), 2), 0), (7,)),
    "tile of a slice of a repeat: an offset to a remainder": (
        lambda emit, x: op.tile(op.strided_slice(op.repeat(x, 2, 0), [0], [3], [5]), [2]),
        lambda x: np.tile(x.repeat(2, 0)[3:5], 2), (3,)),
    "shift of an upsampled image, its outer loops fused": (
        lambda emit, x: op.strided_slice(
            op.nn.pad(op.repeat(x, 2, 1), [0, 0, 1, 0, 0, 0]), [1], [0], [58]),
        lambda x: np.pad(x.repeat(2, 1), [(0, 0), (1, 0), (0, 0)])[:, :58], (40, 29, 58)),
    "tanh of padding only": (
        lambda emit, x: op.strided_slice(op.tanh(op.nn.pad(x, [3, 0], pad_value=0.5)), [0], [1],
                                         [3]),
        lambda x: np.tanh(np.full(2, 0.5)), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fused_functions_that_tvm_or_llvm_got_wrong_are_right(name):
    emit, reference, *shapes = CASES[name]
    rng = np.random.default_rng(0)
    inputs = {f"x{i}": rng.normal(size=s).astype("float32") for i, s in enumerate(shapes)}
    builder = relax.BlockBuilder()
    params = [relax.Var(k, relax.TensorType(v.shape, "float32")) for k, v in inputs.items()]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(emit(lambda e: builder.emit(e), *params))
        builder.emit_func_output(out)
    (got,) = run(builder.get(), inputs)
    np.testing.assert_allclose(got, reference(*inputs.values()), rtol=1e-5, atol=1e-5)
