"""Tests of the recognition of layer norm."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from compiler.ir import simplify_passes
from compiler.ir.recognize_layer_norm import RecognizeLayerNorm

OPS = relax.op
SHAPE = (2, 3, 16)


def square_by(kind, centered):
    if kind == "power":
        return OPS.power(centered, relax.const(2.0))
    return OPS.square(centered) if kind == "square" else OPS.multiply(centered, centered)


def normalize_by(kind, centered, variance):
    root = OPS.sqrt(variance)
    if kind == "divide":
        return OPS.divide(centered, root)
    if kind == "rsqrt":
        return OPS.multiply(OPS.rsqrt(variance), centered)
    if kind == "power":
        return OPS.divide(centered, OPS.power(variance, relax.const(0.5)))
    return OPS.multiply(centered, OPS.divide(relax.const(1.0), root))


def layer_norm(builder, x, square="power", normalize="divide", axes=(-1,), twice=False):
    mean = builder.emit(OPS.mean(x, list(axes), keepdims=True))
    centered = builder.emit(OPS.subtract(x, mean))
    again = centered
    if twice:
        again = builder.emit(OPS.subtract(x, builder.emit(OPS.mean(x, list(axes), keepdims=True))))
    squares = builder.emit(square_by(square, again))
    variance = OPS.add(OPS.mean(squares, list(axes), keepdims=True), relax.const(1e-3))
    return builder.emit(normalize_by(normalize, centered, builder.emit(variance)))


@pytest.mark.parametrize("square", ["power", "square", "multiply"])
@pytest.mark.parametrize("normalize", ["divide", "rsqrt", "power", "reciprocal"])
@pytest.mark.parametrize("twice", [False, True], ids=["one difference", "two differences"])
def test_every_spelling_becomes_one_operator(square, normalize, twice, build, operators):
    def body(builder, x, gamma, beta):
        normal = layer_norm(builder, x, square, normalize, twice=twice)
        return OPS.add(OPS.multiply(normal, gamma), beta)

    mod = build(body, x=(SHAPE, "float32"), gamma=((16,), "float32"), beta=((16,), "float32"))
    assert operators(RecognizeLayerNorm()(mod)) == {"nn.layer_norm": 1}


def test_the_result_is_the_same(build, run, rng):
    gamma, beta = rng.normal(size=(2, 16)).astype("float32")

    def body(builder, x):
        normal = layer_norm(builder, x)
        return OPS.add(relax.const(beta), OPS.multiply(relax.const(gamma), normal))

    mod = build(body, x=(SHAPE, "float32"))
    data = rng.normal(size=SHAPE).astype("float32")
    wide = data.astype("f8")
    centered = wide - wide.mean(-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-3) * gamma + beta
    np.testing.assert_allclose(run(RecognizeLayerNorm()(mod), data), expected, rtol=1e-4, atol=1e-5)


def test_two_trailing_axes_are_normalized_together(build, operators, run, rng):
    mod = build(lambda b, x: layer_norm(b, x, axes=(1, 2)), x=(SHAPE, "float32"))
    after = RecognizeLayerNorm()(mod)
    assert operators(after) == {"nn.layer_norm": 1}
    data = rng.normal(size=SHAPE).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-5)


def test_a_norm_without_gamma_and_beta_is_recognized(build, operators):
    mod = build(lambda b, x: layer_norm(b, x), x=(SHAPE, "float32"))
    assert operators(RecognizeLayerNorm()(mod)) == {"nn.layer_norm": 1}


def test_a_norm_that_is_also_read_unscaled_keeps_its_scale_outside(build, operators):
    def body(builder, x, gamma):
        normal = layer_norm(builder, x)
        return OPS.add(normal, OPS.exp(OPS.multiply(normal, gamma)))

    mod = build(body, x=(SHAPE, "float32"), gamma=((16,), "float32"))
    after = operators(RecognizeLayerNorm()(mod))
    assert after == {"nn.layer_norm": 1, "multiply": 1, "exp": 1, "add": 1}


@pytest.mark.parametrize("kind", ["leading axes", "another mean", "no keepdims difference"])
def test_what_is_no_layer_norm_is_left_alone(kind, build, operators):
    def body(builder, x, y):
        if kind == "leading axes":
            return layer_norm(builder, x, axes=(0, 1))
        mean = OPS.mean(y if kind == "another mean" else x, [-1], keepdims=True)
        centered = builder.emit(OPS.subtract(x, mean))
        squares = square_by("multiply", x if kind == "no keepdims difference" else centered)
        variance = OPS.add(OPS.mean(squares, [-1], keepdims=True), relax.const(1e-3))
        return OPS.divide(centered, OPS.sqrt(variance))

    mod = build(body, x=(SHAPE, "float32"), y=(SHAPE, "float32"))
    assert operators(RecognizeLayerNorm()(mod))["nn.layer_norm"] == 0


def test_the_whole_pipeline_keeps_recognizing_it(build, operators):
    import tvm

    mod = build(lambda b, x: layer_norm(b, x), x=(SHAPE, "float32"))
    with tvm.transform.PassContext(opt_level=3):
        after = tvm.transform.Sequential(simplify_passes())(mod)
    assert operators(after) == {"nn.layer_norm": 1}
