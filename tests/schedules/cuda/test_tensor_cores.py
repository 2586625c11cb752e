"""Products and convolutions on tensor cores: their kernels' PTX, interpreted, against numpy."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.target import Target

from compiler import PassContext, relay
from schedules.cuda import limits
from schedules.cuda.gemm.gemm_tiles import MMA_TILES, Tile
from schedules.cuda.gemm.tensor_cores import TensorCores
from tests.ptx.scheduled import Scheduled
from tests.schedules.cuda.families import planned

TARGET = Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc for PTX")


def product(s, m, n, k, b_is_transposed, dtype="float16", sum_dtype=None):
    """2 * sum over k of a[s, m, k] * b."""
    sums = sum_dtype or dtype
    a = te.placeholder((s, m, k), dtype, name="a")
    b = te.placeholder((s, n, k) if b_is_transposed else (s, k, n), dtype, name="b")
    r = te.reduce_axis((0, k), name="k")

    def term(z, i, j):
        x, y = a[z, i, r], b[z, j, r] if b_is_transposed else b[z, r, j]
        return te.sum(x.astype(sums) * y.astype(sums), axis=r)

    c = te.compute((s, m, n), term, name="c")
    return te.create_prim_func(
        [a, b, te.compute((s, m, n), lambda *at: c(*at) * te.const(2, sums))]
    )


def convolution(n, c, size, o, kernel, stride=1, pad=0, groups=1, nhwc=False, dtype="float16"):
    """relu(conv2d + bias)."""
    x_shape = (n, *size, c) if nhwc else (n, c, *size)
    x = te.placeholder(x_shape, dtype, name="x")
    w_shape = (kernel, kernel, c, o) if nhwc else (o, c // groups, kernel, kernel)
    w = te.placeholder(w_shape, dtype, name="w")
    bias = te.placeholder((o,) if nhwc else (1, o, 1, 1), dtype, name="bias")
    if nhwc:
        y = topi.nn.conv2d_nhwc(x, w, stride, pad, 1, out_dtype=dtype)
    elif groups > 1:
        y = topi.nn.group_conv2d_nchw(x, w, stride, pad, 1, groups)
    else:
        y = topi.nn.conv2d_nchw(x, w, stride, pad, 1)
    return te.create_prim_func([x, w, bias, topi.nn.relu(topi.add(y, bias))])


def values(func):
    rng = np.random.default_rng(0)
    for param in func.params[:-1]:
        shape = tuple(int(extent) for extent in param.shape)
        if "float" in str(param.dtype):
            yield rng.uniform(-1, 1, shape).astype(str(param.dtype))
        else:
            yield rng.integers(-128, 128, shape).astype(str(param.dtype))


def in_float32(func):
    """The function's results as the CPU computes them, without a schedule, in float32."""
    text = func.script().replace("float16", "float32")
    return tvm.script.from_source(text)


def interpreted(func, kernel_func):
    """Inputs, and what the kernels' PTX makes of them, without a race or a wrong access."""
    inputs = list(values(func))
    outcome = Scheduled(kernel_func, TARGET).interpret(inputs)
    assert not outcome.problems, [str(problem) for problem in outcome.problems[:5]]
    return inputs, outcome.outputs[0]


def ptxas(func, folder):
    """Registers of a thread, and bytes of what does not fit into them."""
    module = tvm.IRModule({"k": func.with_attr("global_symbol", "k")})
    (folder / "k.cu").write_text(tvm.tirx.build(module, TARGET).imports[0].inspect_source())
    command = ["nvcc", "-O3", "-cubin", "-arch=sm_90", "-Xptxas", "-v", "-o", "k.cubin", "k.cu"]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stderr
    spills = re.findall(r"(\d+) bytes spill", said)
    return int(re.search(r"Used (\d+) registers", said).group(1)), sum(map(int, spills))


PRODUCTS = [
    # s, m, n, k, transposed b; tile; parts, stages
    ((1, 40, 48, 72, True), Tile(32, 32, 1, 2), 1, 4),
    ((2, 33, 40, 96, False), Tile(16, 64, 1, 4), 1, 3),
    ((1, 50, 31, 250, True), Tile(64, 64, 2, 2), 2, 4),
]


@needs_nvcc
@pytest.mark.parametrize(("shape", "tile", "parts", "stages"), PRODUCTS)
def test_products_of_half_are_right_at_shapes_that_no_tile_divides(shape, tile, parts, stages):
    func = product(*shape)
    (a, b), found = interpreted(func, planned(func, TARGET, tile, parts, stages))
    columns = "zjk" if shape[-1] else "zkj"
    expected = 2 * np.einsum(f"zik,{columns}->zij", a.astype("float64"), b.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@needs_nvcc
@pytest.mark.parametrize("b_is_transposed", [True, False])
def test_products_of_bytes_are_exact(b_is_transposed):
    func = product(1, 20, 24, 100, b_is_transposed, "int8", "int32")
    (a, b), found = interpreted(func, planned(func, TARGET, Tile(32, 32, 1, 2)))
    columns = "zjk" if b_is_transposed else "zkj"
    expected = 2 * np.einsum(f"zik,{columns}->zij", a.astype("int32"), b.astype("int32"))
    np.testing.assert_array_equal(found, expected)


@needs_nvcc
def test_products_of_float32_may_round_what_they_multiply_to_ten_bits():
    func = product(1, 20, 24, 60, True, "float32")
    (a, b), found = interpreted(func, planned(func, TARGET, Tile(32, 32, 1, 2)))
    expected = 2 * np.einsum("zik,zjk->zij", a, b)
    assert 1e-5 < np.abs(found - expected).max() < 2e-2


def test_a_context_lets_float32_onto_tensor_cores():
    x = relay.var("x", shape=(64, 64))
    y = relay.nn.dense(x, relay.const(np.ones((64, 64), "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    for precision, rule in (("tf32", "cuda.tensor_cores"), ("default", "cuda.float32_products")):
        with PassContext(opt_level=3, config={"baton.precision": precision}):
            (kernel,) = relay.build(mod, "cuda -arch=sm_90").report.kernels
        assert kernel.implementation == rule
    with PassContext(opt_level=3, config={"baton.precision": "tf32"}):
        assert "has no TF32" in str(relay.build(mod, "llvm").report)


CONVOLUTIONS = [
    (dict(n=1, c=16, size=(9, 10), o=24, kernel=3, pad=1, nhwc=True), Tile(64, 32, 2, 1), 1),
    (dict(n=2, c=6, size=(9, 10), o=20, kernel=3, stride=2, pad=1), Tile(32, 32, 1, 2), 1),
    (dict(n=1, c=32, size=(6, 7), o=32, kernel=3, pad=1, groups=2), Tile(16, 64, 1, 4), 2),
    (dict(n=1, c=64, size=(8, 8), o=33, kernel=1), Tile(32, 64, 1, 2), 1),
]


@needs_nvcc
@pytest.mark.parametrize(("arguments", "tile", "parts"), CONVOLUTIONS)
def test_convolutions_gather_their_tiles_from_the_image(arguments, tile, parts):
    func = convolution(**arguments)
    inputs, found = interpreted(func, planned(func, TARGET, tile, parts))
    expected = tvm.runtime.tensor(np.zeros(found.shape, "float32"))
    library = tvm.compile(in_float32(func).with_attr("global_symbol", "f"), Target("llvm"))
    library["f"](*[tvm.runtime.tensor(each.astype("float32")) for each in inputs], expected)
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-3, atol=2e-3)


@needs_nvcc
@pytest.mark.parametrize("tile", MMA_TILES[:2], ids=str)
def test_large_tiles_take_the_registers_and_shared_memory_that_they_are_priced_with(tile, tmp_path):
    func = planned(convolution(1, 64, (28, 28), 256, 3, pad=1, nhwc=True), TARGET, tile)
    registers, spills = ptxas(func, tmp_path)
    assert (spills, registers <= tile.registers) == (0, True)
    device = limits.of_arch("sm_90")
    assert device.resident_blocks(tile.threads, registers, tile.shared(4)) >= 2


def test_a_refused_product_is_logged_with_its_reason(caplog):
    caplog.set_level(logging.INFO, "baton.schedules")
    func = product(1, 64, 64, 64, True, "float16", "float64")
    assert TensorCores().apply(func, TARGET, False) is None
    assert "it sums float16 in float64" in caplog.text
    assert TensorCores().apply(product(1, 64, 64, 64, True, "float32"), TARGET, False) is None
    assert len(caplog.records) == 1


def test_a_network_of_halves_lands_on_tensor_cores_with_its_channels_last():
    def weight(*shape):
        return relay.const(np.ones(shape, "float16"))

    x = relay.var("x", shape=(1, 8, 12, 12), dtype="float16")
    y = relay.nn.relu(relay.nn.conv2d(x, weight(16, 8, 3, 3), padding=(1, 1)))
    y = relay.nn.conv2d(relay.nn.max_pool2d(y, (3, 3)), weight(32, 16, 3, 3))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "cuda -arch=sm_90")
    kernels = {each.name: each.implementation for each in lib.report.kernels}
    rules = [rule for name, rule in kernels.items() if "conv2d" in name]
    assert rules == ["cuda.tensor_cores"] * 2
    assert [name for name in kernels if "transpose" in name] == ["transpose"]  # of x
