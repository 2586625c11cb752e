"""Every kind of function without anchor, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.relax import op

from schedules import rules
from schedules.x86.machine import fast_math
from tests.sweep import examples

from .kernels import BASELINE, HOST, V3, compiled, kernel, kernels, loop_kinds, run

few = examples(3)


def relative_error(emit, reference, *shapes, target=HOST, dtypes=None, low=None):
    """Largest error over the largest magnitude, with the schedule and the fast functions."""
    func = kernel(emit, *shapes, dtypes=dtypes)
    scheduled = rules.schedule(func, target)
    assert scheduled is not None
    rng = np.random.default_rng(0)
    inputs = []
    for shape, dtype in zip(shapes, dtypes or ["float32"] * len(shapes)):
        if dtype == "float32":
            inputs.append(rng.normal(size=shape).astype(dtype))
        else:
            inputs.append(rng.integers(0, low or 2, size=shape).astype(dtype))
    want = reference(*(x.astype("float64") if x.dtype == np.float32 else x for x in inputs))
    got = run(fast_math.approximate(scheduled.func), target, *inputs)
    assert got.shape == np.shape(want)
    difference = np.abs(got.astype("float64") - want)
    return difference.max() / max(np.abs(want).max(), 1e-30), scheduled


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x, gamma, beta, axes):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + 1e-5) * gamma + beta


def windows(x, k, s, p, fill):
    """(N, C, OH, OW, ..., k, k) windows of an (N, C, H, W, ...) array."""
    pad = [(0, 0), (0, 0), (p, p), (p, p)] + [(0, 0)] * (x.ndim - 4)
    padded = np.pad(x, pad, constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))
    return view[:, :, ::s, ::s]


CASES = {
    "softmax of rows": (
        lambda x: op.nn.softmax(x, -1), lambda x: softmax(x, -1), (3, 40, 128)),
    "softmax of rows that no vector divides": (
        lambda x: op.nn.softmax(x, -1), lambda x: softmax(x, -1), (5, 197)),
    "softmax of one row": (
        lambda x: op.nn.softmax(x, -1), lambda x: softmax(x, -1), (1, 1000)),
    "softmax over channels": (
        lambda x: op.nn.softmax(x, 1), lambda x: softmax(x, 1), (2, 21, 8, 16)),
    "softmax over channels, odd images": (
        lambda x: op.nn.softmax(x, 1), lambda x: softmax(x, 1), (2, 21, 7, 7)),
    "log_softmax": (
        lambda x: op.nn.log_softmax(x, -1), lambda x: np.log(softmax(x, -1)), (8, 100)),
    "layer norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        lambda x, g, b: layer_norm(x, g, b, -1), (1, 128, 384), (384,), (384,)),
    "layer norm of two odd axes": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-2, -1]),
        lambda x, g, b: layer_norm(x, g, b, (-2, -1)), (9, 5, 33), (5, 33), (5, 33)),
    "layer norm of everything": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-3, -2, -1]),
        lambda x, g, b: layer_norm(x, g, b, (-3, -2, -1)),
        (1, 64, 56, 56), (64, 56, 56), (64, 56, 56)),
    "rms norm": (
        lambda x, g: op.nn.rms_norm(x, g, axes=[-1], epsilon=1e-5),
        lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g, (64, 384), (384,)),
    "group norm": (
        lambda x, g, b: op.nn.group_norm(x, g, b, num_groups=8, channel_axis=1, axes=[2, 3]),
        lambda x, g, b: layer_norm(x.reshape(2, 8, -1), 1, 0, -1).reshape(x.shape)
        * g.reshape(-1, 1, 1) + b.reshape(-1, 1, 1), (2, 32, 14, 14), (32,), (32,)),
    "instance norm": (
        lambda x, g, b: op.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3]),
        lambda x, g, b: layer_norm(x, 1, 0, (2, 3)) * g.reshape(-1, 1, 1) + b.reshape(-1, 1, 1),
        (1, 16, 7, 7), (16,), (16,)),
    "mean over H and W": (
        lambda x: op.mean(x, [2, 3], True), lambda x: x.mean((2, 3), keepdims=True),
        (1, 64, 7, 7)),
    "mean over H and W of a blocked layout": (
        lambda x: op.mean(x, [2, 3], True), lambda x: x.mean((2, 3), keepdims=True),
        (1, 8, 7, 7, 16)),
    "mean over H and W of one image": (
        lambda x: op.mean(x, [2, 3]), lambda x: x.mean((2, 3)), (1, 32, 32, 32)),
    "mean over an axis of one element too": (
        lambda x: op.mean(x, [0, 2, 3]), lambda x: x.mean((0, 2, 3)), (1, 32, 8, 7)),
    "mean of everything": (lambda x: op.mean(x), lambda x: x.mean(), (32, 3, 17)),
    "sum of everything": (lambda x: op.sum(x), lambda x: x.sum(), (64, 1000)),
    "sum of a long vector": (lambda x: op.sum(x), lambda x: x.sum(), (1 << 20,)),
    "sum over the outer axis": (lambda x: op.sum(x, 0), lambda x: x.sum(0), (100, 77)),
    "max over a middle axis": (lambda x: op.max(x, 1), lambda x: x.max(1), (4, 50, 64)),
    "min of odd rows": (lambda x: op.min(x, -1), lambda x: x.min(-1), (7, 61)),
    "sum over two separate axes": (
        lambda x: op.sum(x, [0, 2]), lambda x: x.sum((0, 2)), (8, 33, 50)),
    "standard deviation": (
        lambda x: op.std(x, [1], True), lambda x: x.std(1, keepdims=True), (8, 100, 32)),
    "product": (lambda x: op.prod(x, [1]), lambda x: x.prod(1), (8, 10)),
    "argmax": (lambda x: op.argmax(x, -1), lambda x: x.argmax(-1), (8, 1000)),
    "sum of squares behind a product": (
        lambda x: op.sum(op.multiply(x, x), [1]), lambda x: (x * x).sum(1), (64, 100)),
    "max pooling": (
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
        lambda x: windows(x, 3, 2, 1, -np.inf).max((-2, -1)), (1, 16, 28, 28)),
    "max pooling of a blocked layout": (
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout="NCHW16c"),
        lambda x: windows(x, 3, 2, 1, -np.inf).max((-2, -1)), (1, 2, 28, 28, 16)),
    "average pooling": (
        lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 2)),
        lambda x: windows(x, 2, 2, 0, 0).mean((-2, -1)), (1, 8, 14, 14)),
    "average pooling that counts the padding": (
        lambda x: op.nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1), count_include_pad=True),
        lambda x: windows(x, 3, 1, 1, 0).mean((-2, -1)), (1, 4, 15, 15)),
    "average pooling that does not, of a blocked layout": (
        lambda x: op.nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1), layout="NCHW16c"),
        lambda x: windows(x, 3, 1, 1, 0).sum((-2, -1))
        / windows(np.ones_like(x), 3, 1, 1, 0).sum((-2, -1)), (1, 2, 9, 9, 16)),
    "global average pooling": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)),
        lambda x: x.mean((2, 3), keepdims=True), (1, 32, 13, 13)),
    "transpose": (lambda x: op.permute_dims(x, [1, 0]), lambda x: x.T, (64, 48)),
    "transpose of odd axes": (lambda x: op.permute_dims(x, [1, 0]), lambda x: x.T, (511, 83)),
    "into a blocked layout": (
        lambda x: op.permute_dims(op.reshape(x, (1, 4, 16, 14, 14)), [0, 1, 3, 4, 2]),
        lambda x: x.reshape(1, 4, 16, 14, 14).transpose(0, 1, 3, 4, 2), (1, 64, 14, 14)),
    "out of a blocked layout": (
        lambda x: op.reshape(op.permute_dims(x, [0, 1, 4, 2, 3]), (1, 64, 14, 14)),
        lambda x: x.transpose(0, 1, 4, 2, 3).reshape(1, 64, 14, 14), (1, 4, 14, 14, 16)),
    "concat of channels": (
        lambda x, y: op.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1),
        (1, 16, 13, 13), (1, 8, 13, 13)),
    "concat of the last axis": (
        lambda x, y: op.concat([x, y], -1), lambda x, y: np.concatenate([x, y], -1),
        (40, 48), (40, 32)),
    "concat of odd pieces": (
        lambda x, y: op.concat([x, y], -1), lambda x, y: np.concatenate([x, y], -1),
        (40, 5), (40, 7)),
    "strided slice": (
        lambda x: op.strided_slice(x, [1, 2], [3, 2], [60, 50], [1, 2]),
        lambda x: x[:, 3:60, 2:50:2], (2, 64, 55)),
    "padding": (
        lambda x: op.nn.pad(x, (0, 0, 1, 1, 2, 2)),
        lambda x: np.pad(x, ((0, 0), (1, 1), (2, 2))), (4, 30, 28)),
    "broadcast": (
        lambda x: op.broadcast_to(x, (8, 30, 20)), lambda x: np.broadcast_to(x, (8, 30, 20)),
        (30, 1)),
    "bias and relu": (
        lambda x, b: op.nn.relu(op.add(x, b)), lambda x, b: np.maximum(x + b, 0),
        (1, 16, 14, 14), (1, 16, 1, 1)),
    "where": (
        lambda c, x, y: op.where(op.greater(c, tvm.relax.const(0.0)), x, y),
        lambda c, x, y: np.where(c > 0, x, y), (64, 100), (64, 100), (64, 1)),
    "silu": (lambda x: op.nn.silu(x), lambda x: x / (1 + np.exp(-x)), (1, 16, 28, 28)),
    "tanh": (lambda x: op.tanh(x), np.tanh, (77, 5)),
    "nested functions": (
        lambda x: op.multiply(
            x, op.tanh(op.log(op.add(op.exp(x), tvm.relax.const(1.0))))),
        lambda x: x * np.tanh(np.log(np.exp(x) + 1)), (4, 100)),
    "an exp that is broadcast": (
        lambda x, y: op.add(op.exp(x), y), lambda x, y: np.exp(x) + y, (64, 1), (64, 100)),
    "scalars": (lambda x, y: op.add(x, y), lambda x, y: x + y, (), ()),
    "conv2d without anchor": (
        lambda x, w: op.nn.conv2d(x, w, padding=1),
        lambda x, w: np.einsum("nchwij,ocij->nohw", windows(x, 3, 1, 1, 0), w),
        (1, 6, 12, 12), (8, 6, 3, 3)),
    "matmul without anchor": (lambda x, y: op.matmul(x, y), np.matmul, (3, 17, 50), (50, 32)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_function_is_right_on_this_machine(name, caplog):
    emit, reference, *shapes = CASES[name]
    error, _ = relative_error(emit, reference, *shapes)
    assert error < 5e-6
    assert not caplog.messages  # no stage stays partly scheduled


@pytest.mark.parametrize("target", [V3, BASELINE], ids=["v3", "baseline"])
@pytest.mark.parametrize(
    "name",
    [
        "softmax of rows",
        "softmax of rows that no vector divides",
        "layer norm",
        "mean over H and W of a blocked layout",
        "max pooling of a blocked layout",
        "transpose",
        "silu",
    ],
)
def test_a_function_is_right_on_narrower_vectors(name, target):
    emit, reference, *shapes = CASES[name]
    error, _ = relative_error(emit, reference, *shapes, target=target)
    assert error < 5e-6


@few
@given(st.integers(1, 5), st.integers(1, 90), st.integers(-2, -1))
def test_softmax_of_any_shape_is_right(rows, columns, axis):
    error, _ = relative_error(
        lambda x: op.nn.softmax(x, axis), lambda x: softmax(x, axis), (rows, columns)
    )
    assert error < 5e-6


@few
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=4),
    st.sets(st.integers(0, 3), min_size=1, max_size=2),
)
def test_a_mean_over_any_axes_is_right(shape, axes):
    axes = sorted({axis % len(shape) for axis in axes})
    error, _ = relative_error(
        lambda x: op.mean(x, axes), lambda x: x.mean(tuple(axes)), tuple(shape)
    )
    assert error < 1e-5  # of a mean that may be next to 0


@few
@given(st.lists(st.integers(1, 20), min_size=3, max_size=3), st.permutations(range(3)))
def test_a_transpose_of_any_shape_is_right(shape, order):
    error, _ = relative_error(
        lambda x: op.permute_dims(x, order), lambda x: x.transpose(order), tuple(shape)
    )
    assert error == 0


@few
@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.integers(3, 19), st.integers(3, 19)
)
def test_max_pooling_of_any_shape_is_right(kernel_size, stride, padding, height, width):
    padding = min(padding, kernel_size // 2)
    error, _ = relative_error(
        lambda x: op.nn.max_pool2d(x, (kernel_size,) * 2, (stride,) * 2, (padding,) * 2),
        lambda x: windows(x, kernel_size, stride, padding, -np.inf).max((-2, -1)),
        (2, 3, height, width),
    )
    assert error == 0


@few
@given(
    st.sampled_from(["NCHW8c", "NHWC"]),
    st.sampled_from([1, 5, 24]),
    st.integers(1, 5),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(5, 19),
    st.integers(5, 19),
    st.booleans(),
)
def test_pooling_with_channels_as_lanes_is_right(
    layout, blocks, size, stride, padding, height, width, is_average
):
    padding = min(padding, size // 2)
    shape = (2, blocks, height, width, 8) if layout == "NCHW8c" else (2, height, width, 8 * blocks)
    channels_last = (0, 1, 4, 2, 3) if layout == "NCHW8c" else (0, 3, 1, 2)

    def expected(x):
        x = x.transpose(channels_last)
        outer, images = x.shape[:-2], x.reshape(2, -1, height, width)
        if is_average:
            sums, counts = (
                windows(each, size, stride, padding, 0).sum((-2, -1))
                for each in (images, np.ones_like(images))
            )
            y = sums / counts
        else:
            y = windows(images, size, stride, padding, -np.inf).max((-2, -1))
        return y.reshape(*outer, *y.shape[-2:]).transpose(np.argsort(channels_last))

    pool = op.nn.avg_pool2d if is_average else op.nn.max_pool2d
    error, _ = relative_error(
        lambda x: pool(x, (size,) * 2, (stride,) * 2, (padding,) * 2, layout=layout),
        expected,
        shape,
    )
    assert error < 1e-5


@pytest.mark.parametrize(("target", "block"), [(V3, 8), (HOST, 16)], ids=["AVX2", "host"])
def test_bytes_of_a_block_of_channels_are_pooled_together(target, block):
    error, scheduled = relative_error(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), layout=f"NCHW{block}c"),
        lambda x: windows(x, 3, 2, 1, 0).max((-2, -1)),
        (2, 3, 13, 13, block),
        target=target,
        dtypes=["uint8"],
        low=256,
    )
    assert error == 0
    assert "VECTORIZED" in loop_kinds(scheduled.func)


def test_rows_of_an_embedding_are_gathered():
    error, _ = relative_error(
        lambda table, ids: op.take(table, ids, axis=0),
        lambda table, ids: table[ids],
        (100, 48),
        (1, 20),
        dtypes=["float32", "int64"],
        low=100,
    )
    assert error == 0


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("layer norm", {"PARALLEL", "VECTORIZED"}),
        ("layer norm of everything", {"PARALLEL", "VECTORIZED"}),
        ("softmax of rows", {"PARALLEL", "VECTORIZED"}),
        ("sum of a long vector", {"PARALLEL", "VECTORIZED"}),
        ("max over a middle axis", {"VECTORIZED"}),
        ("silu", {"PARALLEL", "VECTORIZED"}),
        ("max pooling of a blocked layout", {"PARALLEL", "VECTORIZED"}),
        ("conv2d without anchor", {"PARALLEL"}),
    ],
)
def test_large_functions_are_parallel_and_vectorized(name, kinds):
    emit, _, *shapes = CASES[name]
    scheduled = rules.schedule(kernel(emit, *shapes), HOST)
    assert kinds <= loop_kinds(scheduled.func)


def test_small_functions_stay_on_one_thread():
    func = kernel(lambda x: op.nn.relu(x), (1, 16, 14, 14))
    assert loop_kinds(rules.schedule(func, HOST).func) == {"SERIAL", "VECTORIZED"}


def test_an_elementwise_function_is_one_flat_loop_even_if_rows_are_odd():
    func = kernel(lambda x, y: op.add(x, y), (64, 7, 7), (64, 7, 7))
    assembly = compiled(rules.schedule(func, V3).func, V3).mod.inspect_source("asm")
    # Index vectors would show as integer multiplications.
    assert "vaddps" in assembly
    assert "vpmul" not in assembly


@pytest.mark.parametrize(
    "emit",
    [
        lambda x: op.sort(x, -1),
        lambda x: op.cumsum(x, -1),
        lambda x: op.topk(x, 5, -1),
        lambda x: op.nn.adaptive_avg_pool2d(op.reshape(x, (1, 2, 20, 20)), (3, 7)),
        lambda x: op.split(x, 4, -1),
        lambda x: op.scatter_elements(x, op.astype(op.zeros_like(x), "int64"), x, 1),
    ],
    ids=["sort", "cumsum", "topk", "adaptive pooling", "split", "scatter"],
)
def test_nothing_stays_unscheduled(emit):
    for func in kernels(emit, (8, 100)):
        scheduled = rules.schedule(func, HOST)
        assert scheduled is not None
        assert scheduled.func.attrs["tirx.is_scheduled"]
        inputs = [np.zeros([int(d) for d in p.shape], str(p.dtype)) for p in func.params]
        before = [tvm.runtime.tensor(array) for array in inputs]
        after = [tvm.runtime.tensor(array) for array in inputs]
        compiled(func, HOST)["main"](*before)
        compiled(scheduled.func, HOST)["main"](*after)
        for one, other in zip(before, after):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
