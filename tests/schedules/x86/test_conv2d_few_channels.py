"""Convolutions to few channels, with pixels as vector lanes, against float64 numpy."""

import numpy as np
import pytest
import tvm
from tvm import te, topi

from schedules import rules, strategy
from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv import conv2d_few_channels
from tests.schedules.x86.kernels import compiled
from tests.schedules.x86.test_conv2d import TARGETS, reference


def workload(channels, out_channels, size, kernel, strides=(1, 1), dilation=(1, 1), batch=1):
    padding = (kernel[0] // 2, kernel[1] // 2, 1, 2)
    shape = (batch, channels, *size, out_channels)
    return Conv2dWorkload(*shape, kernel, strides, padding, dilation, constant_weight=True)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.attrs["mcpu"]))
@pytest.mark.parametrize(
    ("w", "block"),
    [
        (workload(16, 3, (20, 45), (9, 9)), 8),
        (workload(8, 1, (9, 64), (3, 3), strides=(2, 1), batch=2), 8),
        (workload(3, 10, (12, 31), (5, 3), dilation=(1, 2)), 1),
        (workload(24, 9, (11, 32), (1, 3)), 4),
    ],
)
def test_results_are_right(target, w, block):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((w.batch, w.in_channels, w.height, w.width)).astype("float32")
    weight = rng.standard_normal((w.out_channels, w.in_channels, *w.kernel)).astype("float32")
    bias = rng.standard_normal((1, w.out_channels, 1, 1, 1)).astype("float32")
    config = conv2d_few_channels.fallback(w, target)
    packed = np.ascontiguousarray(conv2d_few_channels.pack_weight(np, weight, config, block))
    given = x
    if block > 1:
        split = x.reshape(w.batch, -1, block, w.height, w.width)
        given = np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))

    data, filters = te.placeholder(given.shape, name="x"), te.placeholder(packed.shape, name="f")
    shift = te.placeholder(bias.shape, name="bias")
    conv = conv2d_few_channels.compute(w, config, data, filters)
    out = topi.nn.relu(topi.add(conv, shift))
    scheduled = rules.schedule(te.create_prim_func([data, filters, shift, out]), target)
    assert scheduled is not None and scheduled.rule == conv2d_few_channels.NAME
    lib = compiled(scheduled.func, target)
    shape = (w.batch, w.out_channels, w.out_height, w.out_width, 1)
    result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    lib["main"](*(tvm.runtime.tensor(array) for array in (given, packed, bias)), result)

    expected = np.maximum(reference(w, x, weight) + bias[..., 0], 0)
    error = np.abs(result.numpy()[..., 0] - expected).max() / np.abs(expected).max()
    assert error < 2e-6


@pytest.mark.parametrize(
    ("channels", "out_channels", "kernel", "better"),
    [(32, 3, 9, True), (56, 4, 5, True), (18, 18, 3, True), (64, 64, 3, False), (64, 2, 1, False)],
)
def test_it_is_chosen_where_channels_would_leave_vectors_empty(
    channels, out_channels, kernel, better
):
    w = workload(channels, out_channels, (64, 64), (kernel, kernel))
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    assert (strategy.select("nn.conv2d", w, target)[0].name == conv2d_few_channels.NAME) == better
