"""Products by AMX: results with tiles in plain loops, and the code that CPUs with it get."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from compiler import PassContext, relay
from compiler.lowering.kernel_passes import amx as functions
from compiler.runtime import graph_executor
from compiler.runtime.disassembly import assembly
from schedules.x86.conv import conv2d_amx, depthwise
from schedules.x86.machine import amx
from schedules.x86.machine.dot_product import OF_BFLOAT16, OF_BYTES, Dot
from schedules.x86.matmul import dense_amx

SAPPHIRE_RAPIDS = "llvm -mcpu=sapphirerapids"
EMULATED = "llvm"
SOURCE = Path(__file__).with_name("emulated_tiles.c")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    library = tmp_path_factory.mktemp("amx") / "emulated_tiles.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", SOURCE, "-o", library], check=True, timeout=60)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def plain_tiles(monkeypatch, emulator):
    """Every CPU has AMX, whose instructions are functions; nothing of it is kept."""

    def call(name: str, *arguments: Any) -> Any:
        return tirx.call_extern("int32", f"emulated_{name}", *arguments)

    monkeypatch.setenv("BATON_KERNEL_CACHE_BYTES", "0")
    monkeypatch.setattr(amx, "multiplies", lambda dot, target: True)
    monkeypatch.setattr(functions, "call_instruction", call)
    monkeypatch.setattr(functions, "CONFIGURE", "emulated_configure")
    monkeypatch.setattr(functions, "CONFIGURE_TEXT", "; nothing")


def numbers(rng: Any, dot: Dot, shape: tuple[int, ...], of_data: bool) -> np.ndarray:
    if dot is OF_BYTES:
        low, high = (0, 256) if of_data else (-128, 128)
        return rng.integers(low, high, shape).astype(dot.data if of_data else dot.weight)
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


def function(data: np.ndarray, emit: Any) -> tvm.IRModule:
    var = relax.Var("x", relax.TensorType(data.shape, str(data.dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            out = builder.emit_output(emit(builder, var))
        builder.emit_func_output(out)
    return builder.get()


def product(lead: tuple[int, ...], k: int, n: int, dot: Dot) -> tuple[tvm.IRModule, Any, Any]:
    """A dense layer with a bias, data for it, and its result."""
    rng = np.random.default_rng(k)
    x, w = numbers(rng, dot, (*lead, k), True), numbers(rng, dot, (k, n), False)
    bias = rng.integers(-99, 99, n).astype(dot.sums)

    def emit(builder: Any, data: Any) -> Any:
        weight = relax.const(tvm.runtime.tensor(w))
        sums = builder.emit(relax.op.matmul(data, weight, dot.sums))
        return relax.op.add(sums, relax.const(bias))

    exact = "int64" if dot is OF_BYTES else "float64"
    return function(x, emit), x, x.astype(exact) @ w.astype(exact) + bias


def convolution(
    shape: tuple[int, ...], out: int, dot: Dot, kernel: int, **attrs: Any
) -> tuple[tvm.IRModule, Any, Any]:
    """A convolution with a bias for each channel, data for it, and its weights."""
    rng = np.random.default_rng(out)
    groups = attrs.get("groups", 1)
    x = numbers(rng, dot, shape, True)
    w = numbers(rng, dot, (out, shape[1] // groups, kernel, kernel), False)
    bias = rng.integers(-99, 99, (1, out, 1, 1)).astype(dot.sums)

    def emit(builder: Any, data: Any) -> Any:
        weight = relax.const(tvm.runtime.tensor(w))
        sums = builder.emit(relax.op.nn.conv2d(data, weight, out_dtype=dot.sums, **attrs))
        return relax.op.add(sums, relax.const(bias))

    return function(x, emit), x, _convolved(x, w, dot, **attrs) + bias


def _convolved(
    x: np.ndarray,
    w: np.ndarray,
    dot: Dot,
    strides: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> np.ndarray:
    exact = "int64" if dot is OF_BYTES else "float64"
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x.astype(exact), sides)
    reach = (w.shape[2] - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), (2, 3))
    windows = windows[:, :, ::strides, ::strides, ::dilation, ::dilation]
    parts = zip(np.split(windows, groups, 1), np.split(w.astype(exact), groups, 0))
    return np.concatenate([np.einsum("nchwyx,ocyx->nohw", *part) for part in parts], 1)


def built(mod: tvm.IRModule, target: str) -> Any:
    with PassContext(opt_level=3):
        return relay.build(mod, target)


def implementations(library: Any) -> set[str]:
    return {each.implementation for each in library.report.kernels if each.operands}


def check(mod: tvm.IRModule, x: np.ndarray, expected: np.ndarray, name: str) -> None:
    library = built(mod, EMULATED)
    assert implementations(library) == {name}
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=x)
    got = executor.get_output(0).numpy()
    if expected.dtype == np.int64:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("lead", "k", "n", "dot"),
    [
        ((1, 128), 64, 96, OF_BYTES),
        ((24,), 192, 33, OF_BYTES),
        ((22,), 120, 70, OF_BYTES),
        ((197,), 64, 48, OF_BYTES),
        ((64,), 512, 2080, OF_BYTES),
        ((1, 64), 96, 40, OF_BFLOAT16),
        ((9,), 32, 64, OF_BFLOAT16),
    ],
)
def test_dense_layers_are_right(plain_tiles, lead, k, n, dot):
    check(*product(lead, k, n, dot), dense_amx.NAMES[dot])


@pytest.mark.parametrize(
    ("shape", "out", "dot", "kernel", "attrs"),
    [
        ((1, 64, 28, 28), 64, OF_BYTES, 3, {"padding": 1}),
        ((2, 3, 31, 31), 24, OF_BYTES, 7, {"padding": 3, "strides": 2}),
        ((1, 144, 7, 7), 96, OF_BYTES, 1, {}),
        ((1, 130, 9, 9), 40, OF_BYTES, 3, {"padding": 1}),
        ((1, 16, 70, 70), 80, OF_BYTES, 3, {"padding": 1}),
        ((1, 48, 21, 21), 64, OF_BYTES, 3, {"dilation": 2, "padding": 2}),
        ((1, 128, 14, 14), 128, OF_BYTES, 3, {"groups": 32, "padding": 1}),
        ((1, 192, 28, 28), 192, OF_BYTES, 1, {"groups": 3, "strides": 2}),
        ((1, 32, 14, 14), 64, OF_BFLOAT16, 3, {"padding": 1}),
        ((1, 3, 33, 33), 16, OF_BFLOAT16, 3, {"strides": 2}),
        ((1, 70, 6, 6), 48, OF_BFLOAT16, 3, {"padding": 1}),
    ],
)
def test_convolutions_are_right(plain_tiles, shape, out, dot, kernel, attrs):
    check(*convolution(shape, out, dot, kernel, **attrs), conv2d_amx.NAMES[dot])


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 64, 14, 14), 3, {"padding": 1}),
        ((2, 96, 23, 23), 3, {"padding": 1, "strides": 2}),
        ((1, 40, 9, 9), 5, {"padding": 2}),
        ((1, 32, 12, 12), 3, {"dilation": 2}),
        ((1, 16, 60, 60), 7, {"padding": 3}),
    ],
)
def test_depthwise_convolutions_between_tiles_are_right(plain_tiles, shape, kernel, attrs):
    made = convolution(shape, shape[1], OF_BFLOAT16, kernel, groups=shape[1], **attrs)
    check(*made, depthwise.OF_SHORT)


@pytest.mark.parametrize(("dot", "name"), [(OF_BYTES, "tdpbusd"), (OF_BFLOAT16, "tdpbf16ps")])
@pytest.mark.parametrize("is_dense", [True, False])
def test_cpus_with_amx_get_its_instructions(is_dense, dot, name):
    made = (
        product((128,), 128, 64, dot)
        if is_dense
        else convolution((1, 64, 16, 16), 64, dot, 3, padding=1)
    )
    library = built(made[0], SAPPHIRE_RAPIDS)
    (kernel,) = (each for each in library.report.kernels if each.operands)
    assert kernel.implementation == (dense_amx if is_dense else conv2d_amx).NAMES[dot]
    assert kernel.instruction == name
    code = assembly(library.get_lib())
    used = {each for each in re.findall(r"\t([a-z0-9]+)\t", code) if each.startswith(("t", "ldt"))}
    assert {name, "tileloadd", "tilestored", "ldtilecfg"} <= used and "tilerelease" in code
    # Two loads of each operand serve four products of a step.
    assert code.count(name) >= 4 and "syscall" in code


@pytest.mark.parametrize(
    ("lead", "k", "target"),
    [
        ((1,), 64, SAPPHIRE_RAPIDS),
        ((257,), 64, SAPPHIRE_RAPIDS),  # no tiles divide them
        ((32,), 64, "llvm -mcpu=znver4"),
    ],
)
def test_few_or_ragged_rows_and_other_cpus_take_dot_products(lead, k, target):
    mod, _, _ = product(lead, k, 32, OF_BYTES)
    assert implementations(built(mod, target)) == {"dense_packed_int8.x86"}
