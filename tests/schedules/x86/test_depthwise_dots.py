"""Depthwise convolutions of bytes by dot products, against numpy's integers."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, topi

from compiler.runtime.cpu import missing_features
from compiler.target import cpu_features
from schedules import rules, strategy
from schedules.config import ConfigEntity, option
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import depthwise_dot
from schedules.x86.conv.skip_padding import skipped_flops
from tests.sweep import examples

from .kernels import compiled

ALL = [
    tvm.target.Target({"kind": "llvm", "mcpu": "sapphirerapids"}),
    tvm.target.Target({"kind": "llvm", "mcpu": "icelake-server"}),
    tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake"}),
    tvm.target.Target({"kind": "llvm", "mcpu": "alderlake"}),
]
RUNNABLE = [target for target in ALL if not missing_features(cpu_features(target))]
TARGETS = RUNNABLE or ALL
pytestmark = pytest.mark.skipif(not RUNNABLE, reason="this CPU has no VNNI to run it")
BY_NAME = {impl.name: impl for impl in strategy.registered("nn.conv2d", TARGETS[0])}
BASE = Conv2dWorkload(
    1, 32, 14, 14, 32, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 32, "uint8", "int32", True, "int8", 7
)


def workload(channels=32, size=(14, 14), kernel=(3, 3), strides=(1, 1), padding=(1,) * 4, **others):
    return replace(
        BASE,
        in_channels=channels,
        out_channels=channels,
        groups=channels,
        height=size[0],
        width=size[1],
        kernel=kernel,
        strides=strides,
        padding=padding,
        **others,
    )


def sums(w, x, weight):
    top, left, bottom, right = w.padding
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(x.astype("i4"), around, constant_values=w.pad_value)
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.kernel, (2, 3))
    windows = windows[:, :, :: w.strides[0], :: w.strides[1]]
    return np.einsum("nchwyx,cyx->nchw", windows, weight[:, 0].astype("i4"))


def blocked(array, block):
    n, c, *image = array.shape
    array = np.pad(array, ((0, 0), (0, -c % block), (0, 0), (0, 0)))
    return np.ascontiguousarray(array.reshape(n, -1, block, *image).transpose(0, 1, 3, 4, 2))


def run(w, target, config=None, ic_block=None, name=depthwise_dot.NAME):
    """Bytes of a convolution and a bias, requantized; what they should be; the library."""
    rng = np.random.default_rng(0)
    impl = BY_NAME[name]
    assert impl.supports(w, target)
    config = config or impl.fallback(w, target)
    block = config.val("oc_block")
    x = rng.integers(0, 256, (w.batch, w.in_channels, w.height, w.width), "u1")
    weight = rng.integers(-128, 128, (w.out_channels, 1, *w.kernel)).astype("i1")
    bias = rng.integers(-9999, 9999, (1, w.out_channels, 1, 1), "i4")
    arrays = [
        x if ic_block == 1 else blocked(x, ic_block or block),
        np.ascontiguousarray(impl.pack(np, weight, config, block)),
        blocked(bias, block),
    ]
    data, filters, shift = (te.placeholder(each.shape, str(each.dtype)) for each in arrays)
    total = topi.add(impl.compute(w, config, data, filters), shift)
    scaled = topi.multiply(topi.cast(total, "float32"), te.const(2.0**-8, "float32"))
    result = topi.cast(topi.clip(topi.cast(topi.round(scaled), "int32"), 0, 255), "uint8")
    func = te.create_prim_func([data, filters, shift, result])
    scheduled = rules.schedule(func, target)
    assert scheduled is not None and scheduled.rule == name
    lib = compiled(scheduled.func, target)
    got = tvm.runtime.tensor(np.zeros([int(each) for each in result.shape], "u1"))
    lib["main"](*(tvm.runtime.tensor(array) for array in arrays), got)
    expected = np.clip(np.rint((sums(w, x, weight) + bias) / 256), 0, 255).astype("u1")
    flat = got.numpy().transpose(0, 1, 4, 2, 3).reshape(w.batch, -1, *expected.shape[2:])
    return flat[:, : w.out_channels], expected, lib


def check(*args, **kwargs):
    got, expected, _ = run(*args, **kwargs)
    np.testing.assert_array_equal(got, expected)


@examples(25)
@given(
    st.sampled_from(TARGETS),
    st.integers(1, 2),
    st.sampled_from([3, 8, 16, 24, 40, 48, 64, 96, 144]),
    st.tuples(st.integers(7, 19), st.integers(7, 33)),
    st.tuples(st.integers(2, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(*[st.integers(0, 3)] * 4),
)
def test_any_shape_has_the_integers_of_numpy(target, n, channels, size, kernel, strides, padding):
    if kernel[0] * kernel[1] >= depthwise_dot.LEAST_TAPS:
        check(workload(channels, size, kernel, strides, padding, batch=n), target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.attrs["mcpu"]))
@pytest.mark.parametrize("kernel, stride", [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1)])
@pytest.mark.parametrize("size", [7, 28])
def test_kernels_of_networks_have_the_integers_of_numpy(target, kernel, stride, size):
    check(workload(48, (size,) * 2, (kernel,) * 2, (stride,) * 2, (kernel // 2,) * 4), target)


@pytest.mark.parametrize("ic_block", [1, 8])
@pytest.mark.parametrize("channels", [24, 64])
def test_images_in_other_blocks_are_copied(channels, ic_block):
    check(workload(channels, (9, 14)), TARGETS[0], ic_block=ic_block)


@pytest.mark.parametrize("kernel, stride", [(12, 1), (13, 2)])
def test_large_kernels_have_the_integers_of_numpy(kernel, stride):
    check(workload(16, (20, 21), (kernel,) * 2, (stride,) * 2, (5, 6, 6, 5)), TARGETS[0])


@pytest.mark.parametrize("rows", [3, 5, 75])
def test_tiles_may_begin_in_the_midst_of_a_square(rows):
    w = workload(16, (75, 10))
    config = BY_NAME[depthwise_dot.NAME].fallback(w, TARGETS[0])
    check(w, TARGETS[0], ConfigEntity({**config, "tile_oh": option(rows)}))


@pytest.mark.parametrize("size", [7, 28, 75, 112])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_tiles_divide_the_image_and_are_few_for_many_cores(size, stride):
    many = tvm.target.Target({"kind": "llvm", "mcpu": "icelake-server", "num-cores": 16})
    w = workload(32, (size,) * 2, strides=(stride,) * 2)
    rows = BY_NAME[depthwise_dot.NAME].fallback(w, many).val("tile_oh")
    assert w.out_height % rows == 0
    assert size < 112 or 2 * w.out_height // rows >= 14


def test_others_are_left_to_the_kernel_of_taps():
    impl = BY_NAME[depthwise_dot.NAME]
    without = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4"})
    assert impl.supports(workload(), TARGETS[0]) and not impl.supports(workload(), without)
    assert not impl.supports(workload(dilation=(2, 2)), TARGETS[0])
    assert not impl.supports(workload(kernel=(3, 1)), TARGETS[0])
    assert not impl.supports(workload(dtype="int8"), TARGETS[0])


def test_products_with_zeros_are_no_operations():
    w = workload()
    impl = BY_NAME[depthwise_dot.NAME]
    config = impl.fallback(w, TARGETS[0])
    data = te.placeholder((1, 1, 14, 14, 32), "uint8")
    weight = te.placeholder((1, 2, 2, 2, 2, 32, 2, 2), "int8")
    func = te.create_prim_func([data, weight, impl.compute(w, config, data, weight)])
    assert skipped_flops(func) == 2 * 14 * 14 * 32 * (16 - 9)
