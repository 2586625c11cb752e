"""Products of bytes without VNNI, exact whatever the bytes are: of words, narrow, Winograd's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from compiler import relay
from compiler.runtime import graph_executor
from compiler.runtime.cpu import missing_features
from compiler.target import cpu_features, parse
from schedules.x86.machine.dot_product import largest_sum, narrow_steps

AVX2, SSE, AVX512, VNNI = (
    f"llvm -mcpu={name}" for name in ("haswell", "x86-64-v2", "skylake-avx512", "cascadelake")
)
ZERO = 37


def weights(kind: str, *shape: int) -> np.ndarray:
    """int8, of which "pairs" and "fours" just fit int16 in sums of so many products."""
    rng = np.random.default_rng(3)
    most = {"bytes": 127, "pairs": 64, "fours": 32}[kind]
    values = rng.integers(-most, most + 1, shape)
    values[0] = most
    values[-1] = -most - 1 if kind == "bytes" else -most
    return values.astype("int8")


def images(*shape: int) -> np.ndarray:
    """uint8 with many of the largest."""
    rng = np.random.default_rng(4)
    values = rng.integers(0, 256, shape)
    return np.where(rng.random(shape) < 0.5, 255, values).astype("uint8")


def run(node: Any, x: np.ndarray, w: np.ndarray, target: str) -> tuple[Any, np.ndarray]:
    """The library of one node over integers, and its results; skips what this CPU can't run."""
    lacking = missing_features(cpu_features(parse(target)))
    if lacking:
        pytest.skip(f"this CPU has no {', '.join(lacking)}")
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.uint8(ZERO), "z")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([node], "g", inputs, [output], constants)
    sets = [helper.make_opsetid("", 17)]
    mod, params = relay.frontend.from_onnx(
        helper.make_model(graph, opset_imports=sets, ir_version=8)
    )
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target, params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=x)
    return library, module.get_output(0).numpy()


def conv(x: np.ndarray, w: np.ndarray, pad: int = 0, stride: int = 1, groups: int = 1) -> Any:
    """A ConvInteger node and its results."""
    pads, strides = [pad] * 4, [stride] * 2
    taps = list(w.shape[2:])
    node = helper.make_node(
        *("ConvInteger", ["x", "w", "z"], ["y"]),
        **{"kernel_shape": taps, "pads": pads, "strides": strides, "group": groups},
    )
    wide = np.pad(x.astype("float64") - ZERO, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, taps, (2, 3))[:, :, ::stride, ::stride]
    apart = windows.reshape(len(x), groups, -1, *windows.shape[2:])
    filters = w.reshape(groups, -1, *w.shape[1:]).astype("float64")
    sums = np.einsum("ngchwij,gocij->ngohw", apart, filters)
    return node, sums.reshape(len(x), len(w), *sums.shape[3:])


def kernel(library: Any) -> Any:
    """The report's row of the only product."""
    (row,) = (each for each in library.report.kernels if each.instruction)
    return row


def is_narrow(library: Any) -> bool:
    return kernel(library).instruction == "vpmaddubsw"


@pytest.mark.parametrize(("kind", "steps"), [("bytes", 0), ("pairs", 1), ("fours", 2)])
def test_narrow_steps_are_told_by_the_values(kind, steps):
    values = weights(kind, 5, 24)
    assert narrow_steps(values, parse(AVX2)) == steps
    assert narrow_steps(values, parse(VNNI)) == 0
    least = narrow_steps(values[:, :23], parse(AVX2))  # a step is filled up with zeros
    assert least == steps


def test_signs_within_a_pair_make_up_for_each_other():
    """Sums reach what adds to them and what takes from them, but not both."""
    row = np.array([[127, -128, 1, 0]], "int8")
    assert narrow_steps(row, parse(AVX2)) == 2
    assert narrow_steps(np.array([[127, 2, 0, 0]], "int8"), parse(AVX2)) == 0
    assert narrow_steps(np.array([[127, 0, 0, 0, 2, 0, 0, 0]], "int8"), parse(AVX2)) == 1
    assert largest_sum(np.array([[3, -4], [1, -2]], "int8")) == 4 * 255


@pytest.mark.parametrize("target", [AVX2, SSE, AVX512])
@pytest.mark.parametrize("kind", ["bytes", "pairs", "fours"])
@pytest.mark.parametrize(
    ("channels", "size", "taps", "pad", "stride", "groups"),
    [(32, 9, 1, 0, 1, 1), (3, 12, 3, 1, 2, 1), (24, 11, 3, 1, 2, 1), (32, 8, 3, 1, 1, 2)],
)
def test_convolutions_are_exact(target, kind, channels, size, taps, pad, stride, groups):
    x = images(1, channels, size, size)
    w = weights(kind, 32, channels // groups, taps, taps)
    node, expected = conv(x, w, pad, stride, groups)
    library, got = run(node, x, w, target)
    np.testing.assert_array_equal(got, expected)
    if target == AVX2:
        assert is_narrow(library) == (kind != "bytes")


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("kind", ["bytes", "pairs", "fours"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 64, 32), (7, 36, 20), (40, 96, 64)])
def test_products_with_constants_are_exact(target, kind, rows, depth, columns):
    x, w = images(rows, depth), weights(kind, columns, depth).T.copy()
    node = helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])
    library, got = run(node, x, w, target)
    np.testing.assert_array_equal(got, (x.astype("int64") - ZERO) @ w.astype("int64"))
    if target == AVX2:
        assert is_narrow(library) == (kind != "bytes")


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize(
    ("channels", "size", "outputs", "taps", "tile"),
    [
        (64, 14, 64, (3, 3), "F(4x4,3x3)"),
        (64, 28, 32, (3, 3), "F(4x4,3x3)"),
        (128, 14, 256, (3, 1), "F(4x1,3x1)"),
    ],
)
def test_winograd_of_bytes_is_exact(target, channels, size, outputs, taps, tile):
    """Half of the images are 255 and some filters 127 or -128 alone: sums of transforms wrap."""
    x, w = images(1, channels, size, size), weights("bytes", outputs, channels, *taps)
    node, expected = conv(x, w)
    library, got = run(node, x, w, target)
    assert tile in kernel(library).algorithm and kernel(library).instruction == "vpmaddwd"
    np.testing.assert_array_equal(got, expected)


def test_winograd_leaves_sums_to_others_that_are_too_large_for_it():
    """26 bits hold no sum of 512 x 9 products of the largest bytes."""
    x, w = images(1, 512, 12, 12), weights("bytes", 16, 512, 3, 3)
    node, expected = conv(x, w)
    library, got = run(node, x, w, AVX2)
    assert "F(4x4,3x3)" not in kernel(library).algorithm
    np.testing.assert_array_equal(got, expected)
