"""Matmuls with divided k, whose parts the kernel of a norm or softmax adds."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from tvm import te, topi

from schedules.cuda import device as devices
from schedules.cuda.gemm.contraction import take_apart
from schedules.cuda.gemm.gemm_tiles import FMA_TILES, Plan, cheapest
from schedules.cuda.gemm.implicit_gemm import kernel
from schedules.cuda.gemm.tensor_cores import TF32
from schedules.cuda.verify import launches
from schedules.strategy import PREDICTED_SECONDS_ATTR
from tests.ptx import ptxas
from tests.ptx.mutants import mutants
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.checking import TARGET, schedule, tensor

nn = topi.nn
needs_nvcc = pytest.mark.skipif(ptxas.NVCC is None, reason="needs nvcc")


def layer_norm(y):
    width = int(y.shape[-1])
    scale, shift = tensor(width, name="scale"), tensor(width, name="shift")
    return [scale, shift], [nn.layer_norm(y, scale, shift, [len(y.shape) - 1], 1e-5)]


def func(m, n, k, rows=layer_norm, dtype="float32", returns_sum=False):
    """rows(x w + r), and the sum if it is returned."""
    x, w = tensor(m, k, dtype=dtype), tensor(k, n, dtype=dtype, name="w")
    at = te.reduce_axis((0, k), name="k")
    wide = "int32" if dtype == "int8" else "float32"
    product = te.compute(
        (m, n), lambda i, j: te.sum(x[i, at].astype(wide) * w[at, j].astype(wide), axis=at)
    )
    r = tensor(m, n, name="r")
    y = topi.add(topi.cast(product, "float32"), r)
    operands, results = rows(y)
    return te.create_prim_func([x, w, r, *operands, *([y] if returns_sum else []), *results])


def softmax(y):
    return [], [nn.softmax(topi.multiply(y, 0.01))]


def rms_norm(y):
    """As float32 and as float16."""
    scale = tensor(int(y.shape[-1]), name="scale")
    squares = topi.sum(topi.multiply(y, y), 1, keepdims=True)
    normal = topi.multiply(topi.multiply(y, topi.rsqrt(topi.add(squares, 1e-5))), scale)
    return [scale], [normal, topi.cast(normal, "float16")]


def tanh(y):
    return [], [topi.tanh(y)]


def rows_of(y, operands, rows):
    if rows is softmax:
        each = np.exp(0.01 * y - (0.01 * y).max(-1, keepdims=True))
        return [each / each.sum(-1, keepdims=True)]
    if rows is tanh:
        return [np.tanh(y)]
    if rows is rms_norm:
        normal = y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-5) * operands[0]
        return [normal, normal]
    scale, shift = operands
    return [
        (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5) * scale + shift
    ]


def values(function, count):
    rng = np.random.default_rng(0)
    for param in function.params[:count]:
        shape, dtype = [int(extent) for extent in param.shape], str(param.dtype)
        whole = rng.integers(-9, 9, shape) if "int" in dtype else rng.uniform(-1, 1, shape)
        yield whole.astype(dtype)


@needs_nvcc
@pytest.mark.parametrize("returns_sum", [False, True])
@pytest.mark.parametrize(
    ("rows", "dtype", "rule"),
    [
        (layer_norm, "float32", "cuda.float32_products"),
        (softmax, "float16", "cuda.tensor_cores"),
        (rms_norm, "bfloat16", "cuda.tensor_cores"),
        (softmax, "int8", "cuda.tensor_cores"),
        (tanh, "float32", "cuda.float32_products"),
    ],
)
def test_rows_of_a_matmul_are_right_without_a_race(rows, dtype, rule, returns_sum):
    pytest.importorskip("ml_dtypes")
    function = func(18, 76, 2048, rows, dtype, returns_sum)
    name, made = schedule(function)
    assert (name, launches(made)) == (rule, 2)
    inputs = list(values(function, 3 + len(rows(tensor(18, 76))[0])))
    outcome = Scheduled(made, TARGET).interpret(inputs)
    assert [str(problem) for problem in outcome.problems] == []
    x, w, r, *operands = (each.astype("float64") for each in inputs)
    y = x @ w + r
    expected = [*([y] if returns_sum else []), *rows_of(y, operands, rows)]
    for found, right in zip(outcome.outputs, expected, strict=True):
        tolerance = 2e-3 if found.dtype == "float16" else 1e-4
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)


@needs_nvcc
def test_the_parts_are_added_in_the_order_of_the_kernel_that_only_adds():
    """Bit for bit, of the same plan."""
    merged, alone = func(9, 72, 1536, returns_sum=True), func(9, 72, 1536, lambda y: ([], [y]))
    taken, device = take_apart(merged), devices.of(TARGET)
    plan = cheapest(FMA_TILES, taken, device)
    assert isinstance(plan, Plan)
    assert plan.parts > 2
    inputs = list(values(merged, 5))
    both = Scheduled(kernel(taken, plan, TARGET), TARGET).interpret(inputs)
    only = Scheduled(kernel(take_apart(alone), plan, TARGET), TARGET).interpret(inputs[:3])
    np.testing.assert_array_equal(both.outputs[0], only.outputs[0])


@needs_nvcc
def test_rows_may_be_the_channels_of_a_convolution():
    x, w = tensor(1, 6, 6, 256), tensor(3, 3, 256, 40, name="w")
    y = nn.conv2d_nhwc(x, w, 1, 1, 1)
    operands, results = layer_norm(y)
    function = te.create_prim_func([x, w, *operands, *results])
    name, made = schedule(function)
    assert (name, launches(made)) == ("cuda.float32_products", 2)
    inputs = list(values(function, 4))
    outcome = Scheduled(made, TARGET).interpret(inputs)
    assert not outcome.problems
    x, w, scale, shift = inputs
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    y = np.einsum("nhwcij,ijco->nhwo", windows.astype("float64"), w)
    np.testing.assert_allclose(
        outcome.outputs[0], rows_of(y, [scale, shift], layer_norm)[0], rtol=1e-4, atol=1e-4
    )


@needs_nvcc
def test_missing_barriers_and_short_arrays_of_rows_are_noticed():
    function = func(3, 300, 512, returns_sum=True)
    scheduled = Scheduled(schedule(function)[1], TARGET)
    inputs = list(values(function, 5))
    assert len(scheduled.launches) == 2
    rows = [each for each in mutants(scheduled.ptx, scheduled.launches) if each.is_shorter]
    assert len(rows) > 1
    for mutant in rows:
        assert scheduled.interpret(inputs, mutant.ptx, mutant.launches).problems, mutant.missing


def test_tf32_is_a_property_of_the_function():
    function = func(128, 768, 3072)
    rounded, exact = (schedule(each)[0] for each in (function.with_attr(TF32, True), function))
    assert (rounded, exact) == ("cuda.tensor_cores", "cuda.float32_products")


def test_two_launches_take_less_than_three():
    function, product = func(128, 768, 3072), func(128, 768, 3072, lambda y: ([], [y]))
    y = tensor(128, 768)
    operands, results = layer_norm(y)
    norm = te.create_prim_func([y, *operands, *results])
    seconds = [
        float(schedule(each)[1].attrs[PREDICTED_SECONDS_ATTR]) for each in (function, product, norm)
    ]
    launch = devices.of(TARGET).launch_seconds
    assert 0.5 * launch < seconds[1] + seconds[2] - seconds[0] < launch


def test_a_matmul_with_tiles_for_all_multiprocessors_stays_apart_from_its_rows(caplog):
    """No rule of a matmul takes them together, and none reports that it should have."""
    with caplog.at_level(logging.INFO, "baton.schedules"):
        for dtype in ("float32", "float16"):
            name, _ = schedule(func(1024, 4096, 512, dtype=dtype))
            assert name not in ("cuda.float32_products", "cuda.tensor_cores")
    assert "not computed on tensor cores" not in caplog.text


def test_two_long_rows_are_read_by_two_multiprocessors_which_may_take_longer_than_a_launch():
    taken, device = take_apart(func(2, 8192, 16384)), devices.of(TARGET)
    assert isinstance(cheapest(FMA_TILES, taken, device), Plan)
    quick = replace(device, launch_seconds=device.launch_seconds / 2)
    assert cheapest(FMA_TILES, taken, quick) == "a kernel for the rows alone is faster"
    assert taken.rows.adding_seconds(device, 8) > 4 * taken.rows.adding_seconds(device, 1)
