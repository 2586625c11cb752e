"""Tests of the inference forms of batch norm and dropout."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from compiler.ir.simplify_inference import SimplifyInference

C = 4


def parameters(rng):
    gamma, beta, mean = (rng.normal(size=C).astype("float32") for _ in range(3))
    return gamma, beta, mean, rng.uniform(0.1, 2, C).astype("float32")


def reference(data, gamma, beta, mean, var, epsilon, axis):
    along = [1] * data.ndim
    along[axis] = C
    wide = [p.astype("f8").reshape(along) for p in (gamma, beta, mean, var)]
    return (data - wide[2]) / np.sqrt(wide[3] + epsilon) * wide[0] + wide[1]


@pytest.mark.parametrize(("shape", "axis"), [((2, C, 5, 3), 1), ((2, 5, C), 2), ((3, C), -1)])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_batch_norm_becomes_one_multiply_and_one_add(
    shape, axis, epsilon, build, operators, run, rng
):
    values = parameters(rng)

    def body(builder, x):
        arguments = [relax.const(value) for value in values]
        result = builder.emit(
            relax.op.nn.batch_norm(x, *arguments, axis=axis, epsilon=epsilon, training=False)
        )
        return relax.TupleGetItem(result, 0)

    mod = SimplifyInference()(build(body, x=(shape, "float32")))
    assert operators(mod) == {"multiply": 1, "add": 1}
    data = rng.normal(size=shape).astype("float32")
    np.testing.assert_allclose(
        run(mod, data), reference(data, *values, epsilon, axis), rtol=1e-5, atol=1e-5
    )


def test_batch_norm_of_unknown_parameters_is_computed_at_run_time(build, operators, run, rng):
    def body(builder, x, gamma, beta, mean, var):
        result = builder.emit(
            relax.op.nn.batch_norm(x, gamma, beta, mean, var, axis=1, training=False)
        )
        return relax.TupleGetItem(result, 0)

    vector = ((C,), "float32")
    mod = build(body, x=((2, C, 3), "float32"), gamma=vector, beta=vector, mean=vector, var=vector)
    mod = SimplifyInference()(mod)
    assert operators(mod)["nn.batch_norm"] == 0
    data, values = rng.normal(size=(2, C, 3)).astype("float32"), parameters(rng)
    np.testing.assert_allclose(
        run(mod, data, *values), reference(data, *values, 1e-5, 1), rtol=1e-4, atol=1e-5
    )


def test_batch_norm_without_scale_and_center_ignores_gamma_and_beta(build, run, rng):
    gamma, beta, mean, var = parameters(rng)

    def body(builder, x):
        arguments = [relax.const(value) for value in (gamma, beta, mean, var)]
        call = relax.op.nn.batch_norm(
            x, *arguments, axis=1, center=False, scale=False, training=False
        )
        return relax.TupleGetItem(builder.emit(call), 0)

    data = rng.normal(size=(2, C, 3)).astype("float32")
    result = run(SimplifyInference()(build(body, x=((2, C, 3), "float32"))), data)
    ones, zeros = np.ones(C, "float32"), np.zeros(C, "float32")
    expected = reference(data, ones, zeros, mean, var, 1e-5, 1)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_batch_norm_in_training_is_left_alone(build, operators, rng):
    values = parameters(rng)

    def body(builder, x):
        arguments = [relax.const(value) for value in values]
        call = relax.op.nn.batch_norm(x, *arguments, axis=1, training=True)
        return relax.TupleGetItem(builder.emit(call), 0)

    mod = SimplifyInference()(build(body, x=((2, C, 3), "float32")))
    assert operators(mod) == {"nn.batch_norm": 1}


def test_dropout_disappears(build, operators):
    def body(builder, x):
        result = builder.emit(relax.op.nn.dropout(relax.op.nn.relu(x), 0.5))
        return relax.op.exp(builder.emit(relax.TupleGetItem(result, 0)))

    mod = SimplifyInference()(build(body, x=((2, 3), "float32")))
    assert operators(mod) == {"nn.relu": 1, "exp": 1}
