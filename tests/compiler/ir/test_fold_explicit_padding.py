"""Tests of folding padding into convolutions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import relax

from compiler.ir.fold_explicit_padding import FoldExplicitPadding

OPS = relax.op
SHAPE = ((1, 3, 6, 7), "float32")


def padded_conv(builder, x, widths, value=0.0, mode="constant", **attrs):
    weight = relax.const(np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype("float32"))
    padded = builder.emit(OPS.nn.pad(x, widths, mode, value))
    return OPS.nn.conv2d(padded, weight, **attrs)


@pytest.mark.parametrize("attrs", [{}, {"padding": [0, 1, 2, 0], "strides": 2, "dilation": 2}])
def test_zero_padding_becomes_an_attribute(attrs, build, operators, run, rng):
    mod = build(lambda b, x: padded_conv(b, x, [0, 0, 0, 0, 1, 2, 3, 0], **attrs), x=SHAPE)
    after = FoldExplicitPadding()(mod)
    assert operators(after) == {"nn.conv2d": 1}
    data = rng.normal(size=SHAPE[0]).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-5, atol=1e-5)


def test_it_follows_the_layout(build, operators, run, rng):
    weight = relax.const(rng.normal(size=(3, 3, 3, 4)).astype("float32"))

    def body(builder, x):
        padded = builder.emit(OPS.nn.pad(x, [0, 0, 1, 0, 0, 2, 0, 0], "constant", 0.0))
        return OPS.nn.conv2d(padded, weight, data_layout="NHWC", kernel_layout="HWIO")

    mod = build(body, x=((1, 6, 7, 3), "float32"))
    after = FoldExplicitPadding()(mod)
    assert operators(after) == {"nn.conv2d": 1}
    data = rng.normal(size=(1, 6, 7, 3)).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("widths", "options"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], {"value": 1.0}),
        ([0, 0, 0, 0, 1, 1, 1, 1], {"mode": "reflect"}),
        ([1, 0, 0, 0, 1, 1, 1, 1], {}),
    ],
    ids=["padding with ones", "reflection", "padding of the batch"],
)
def test_other_padding_is_left_alone(widths, options, build):
    mod = build(lambda b, x: padded_conv(b, x, widths, **options), x=SHAPE)
    assert tvm_ffi.structural_equal(FoldExplicitPadding()(mod), mod)


@pytest.mark.parametrize(
    ("pool", "value", "options", "count"),
    [
        (OPS.nn.max_pool2d, float(np.finfo("float32").min), {"padding": 1}, 1),
        (OPS.nn.avg_pool2d, 0.0, {"count_include_pad": True, "padding": 1}, 1),
        (OPS.nn.avg_pool2d, 0.0, {"count_include_pad": False}, 1),
        (OPS.nn.avg_pool2d, 0.0, {"count_include_pad": False, "padding": 1}, 2),
        (OPS.nn.max_pool2d, 0.0, {}, 2),
    ],
    ids=["max", "mean", "mean of its own", "mean of both", "max of other padding"],
)
def test_padding_goes_into_pooling_where_it_means_the_same(
    pool, value, options, count, build, operators, run, rng
):
    def body(builder, x):
        padded = builder.emit(OPS.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", value))
        return pool(padded, (3, 3), strides=(2, 2), **options)

    mod = build(body, x=SHAPE)
    after = FoldExplicitPadding()(mod)
    assert operators(after).total() == count
    data = rng.normal(size=SHAPE[0]).astype("float32")
    np.testing.assert_allclose(run(after, data), run(mod, data), rtol=1e-5, atol=1e-5)
