"""Tests of folding scales and shifts into convolutions and matmuls."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler.ir.fold_constants import FoldConstant
from compiler.ir.fold_scale_axis import FoldScaleAxis
from compiler.ir.simplify_inference import SimplifyInference

OPS = relax.op


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


ANCHORS = {
    "conv2d": ((1, 4, 6, 6), (8, 4, 3, 3), OPS.nn.conv2d, {"padding": 1}, (1, 8, 1, 1)),
    "conv2d of groups": ((1, 4, 6, 6), (8, 2, 3, 3), OPS.nn.conv2d, {"groups": 2}, (1, 8, 1, 1)),
    "depthwise": ((1, 4, 6, 6), (4, 1, 3, 3), OPS.nn.conv2d, {"groups": 4}, (1, 4, 1, 1)),
    "conv2d NHWC": (
        (1, 6, 6, 4),
        (3, 3, 4, 8),
        OPS.nn.conv2d,
        {"data_layout": "NHWC", "kernel_layout": "HWIO"},
        (1, 1, 1, 8),
    ),
    "conv1d": ((1, 4, 9), (8, 4, 3), OPS.nn.conv1d, {}, (1, 8, 1)),
    "conv3d": ((1, 2, 5, 5, 5), (3, 2, 3, 3, 3), OPS.nn.conv3d, {}, (1, 3, 1, 1, 1)),
    "conv2d_transpose": ((1, 4, 5, 5), (4, 6, 3, 3), OPS.nn.conv2d_transpose, {}, (1, 6, 1, 1)),
    "conv2d_transpose of groups": (
        (1, 4, 5, 5),
        (4, 3, 3, 3),
        OPS.nn.conv2d_transpose,
        {"groups": 2},
        (1, 6, 1, 1),
    ),
    "matmul": ((2, 3, 5), (5, 7), OPS.matmul, {}, (7,)),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_scale_and_shift_fold_into_weights_and_bias(name, build, operators, run, rng):
    data_shape, weight_shape, op, attrs, along = ANCHORS[name]
    weight, bias, scale, shift = normal(rng, *weight_shape), *(normal(rng, *along) for _ in "abc")

    def body(builder, x):
        y = OPS.add(op(x, relax.const(weight), **attrs), relax.const(bias))
        return OPS.subtract(OPS.multiply(y, relax.const(scale)), relax.const(shift))

    mod = build(body, x=(data_shape, "float32"))
    after = FoldScaleAxis()(mod)
    anchor = op.__name__ if op is OPS.matmul else f"nn.{op.__name__}"
    assert operators(after) == {anchor: 1, "add": 1}
    data = normal(rng, *data_shape)
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-4)


def test_batch_norm_after_a_convolution_folds_to_a_bias(build, operators, run, rng):
    weight = normal(rng, 8, 4, 3, 3)
    statistics = [normal(rng, 8), normal(rng, 8), normal(rng, 8), abs(normal(rng, 8)) + 0.1]

    def body(builder, x):
        conv = OPS.nn.conv2d(x, relax.const(weight), padding=1)
        parameters = [relax.const(value) for value in statistics]
        norm = builder.emit(
            OPS.nn.batch_norm(conv, *parameters, axis=1, epsilon=1e-3, training=False)
        )
        return OPS.nn.relu(builder.emit(relax.TupleGetItem(norm, 0)))

    mod = build(body, x=((1, 4, 6, 6), "float32"))
    after = FoldScaleAxis()(SimplifyInference()(mod))
    assert operators(after) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}
    data = normal(rng, 1, 4, 6, 6)
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-4)


def test_division_by_a_constant_folds(build, operators, run, rng):
    weight, divisor = normal(rng, 5, 7), abs(normal(rng, 7)) + 0.5

    def body(builder, x):
        return OPS.divide(OPS.matmul(x, relax.const(weight)), relax.const(divisor))

    mod = build(body, x=((2, 5), "float32"))
    after = FoldScaleAxis()(mod)
    assert operators(after) == {"matmul": 1}
    data = normal(rng, 2, 5)
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-5, atol=1e-5)


def unfoldable(builder, x, kind, rng):
    weight = relax.const(normal(rng, 8, 4, 3, 3))
    conv = builder.emit(OPS.nn.conv2d(x, weight))
    if kind == "a second reader":
        return OPS.add(OPS.multiply(conv, relax.const(normal(rng, 1, 8, 1, 1))), conv)
    if kind == "a scale along the width":
        return OPS.multiply(conv, relax.const(normal(rng, 1, 1, 1, 4)))
    if kind == "a relu between":
        return OPS.multiply(OPS.nn.relu(conv), relax.const(normal(rng, 1, 8, 1, 1)))
    return OPS.multiply(conv, relax.const(normal(rng, 3, 8, 1, 1)))


@pytest.mark.parametrize(
    "kind",
    ["a second reader", "a scale along the width", "a relu between", "a scale that broadcasts"],
)
def test_what_can_not_be_folded_is_left_alone(kind, build, rng):
    mod = build(lambda builder, x: unfoldable(builder, x, kind, rng), x=((1, 4, 6, 6), "float32"))
    assert tvm_ffi.structural_equal(FoldScaleAxis()(mod), mod)


def test_a_positive_scale_passes_relu(build, operators, run, rng):
    weight, bias = normal(rng, 8, 4, 3, 3), normal(rng, 1, 8, 1, 1)

    def body(builder, x):
        y = OPS.nn.relu(OPS.add(OPS.nn.conv2d(x, relax.const(weight)), relax.const(bias)))
        return OPS.multiply(y, relax.const(abs(bias) + 0.5))

    mod = build(body, x=((1, 4, 6, 6), "float32"))
    after = FoldScaleAxis()(mod)
    assert operators(after) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}
    data = normal(rng, 1, 4, 6, 6)
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-4)


def test_a_bias_in_front_of_an_image_of_one_pixel_folds(build, operators, run, rng):
    weight, bias, scale = normal(rng, 8, 4, 1, 1), normal(rng, 1, 8, 1, 1), normal(rng, 8, 1, 1)

    def body(builder, x):
        total = OPS.add(relax.const(bias), OPS.nn.conv2d(x, relax.const(weight)))
        return OPS.multiply(relax.const(scale), total)

    mod = build(body, x=((1, 4, 1, 1), "float32"))
    after = FoldScaleAxis()(mod)
    assert operators(after) == {"nn.conv2d": 1, "add": 1}
    data = normal(rng, 1, 4, 1, 1)
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-4, atol=1e-4)


def test_weights_that_are_parameters_are_left_alone(build, rng):
    def body(builder, x, w):
        return OPS.multiply(OPS.nn.conv2d(x, w), relax.const(normal(rng, 1, 8, 1, 1)))

    mod = build(body, x=((1, 4, 6, 6), "float32"), w=((8, 4, 3, 3), "float32"))
    assert tvm_ffi.structural_equal(FoldScaleAxis()(mod), mod)


def test_it_runs_at_level_three_only(build, operators, rng):
    def body(builder, x):
        return OPS.multiply(
            OPS.matmul(x, relax.const(normal(rng, 5, 7))), relax.const(normal(rng, 7))
        )

    mod = build(body, x=((2, 5), "float32"))
    passes = tvm.transform.Sequential([FoldScaleAxis(), FoldConstant()])
    with tvm.transform.PassContext(opt_level=2):
        assert operators(passes(mod)) == {"matmul": 1, "multiply": 1}
    with tvm.transform.PassContext(opt_level=3):
        assert operators(passes(mod)) == {"matmul": 1}
