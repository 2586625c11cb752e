"""Errors of the default precision where magnitudes differ within a sample."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import relay

# onnxruntime's worst rows are off by 3e-7 to 7e-7 of their largest value.
ROW_LIMIT = 2.5e-6


def results(op_type, x, w, precision="default", is_open=False, **attributes):
    shape = ("n", *x.shape[1:]) if is_open else x.shape
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mod, params = relay.frontend.from_onnx(model)
    with compiler.PassContext(opt_level=3, config={"baton.precision": precision}):
        library = relay.build(mod, "llvm", params=params)
    (y,) = library.session().run({"x": x}).values()
    return y


def operands(kind, rows, depth, columns):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, rows, depth)).astype("float32")
    w = (rng.standard_normal((depth, columns)) / np.sqrt(depth)).astype("float32")
    if kind == "outlier feature":
        x[..., 7] *= 1e4
        w[7] *= 1e-4
    elif kind == "second token":
        x[:, 1::2] *= 1e4
    elif kind == "second column":
        w[:, 1::2] *= 1e4
    elif kind == "one sign":
        x, w = np.abs(x), np.abs(w)
    return x, w


@pytest.mark.parametrize("shape", [(64, 768, 256), (3, 8192, 64)])
@pytest.mark.parametrize("kind", ["outlier feature", "second token", "second column", "one sign"])
def test_the_error_of_a_row_is_relative_to_the_row(kind, shape):
    x, w = operands(kind, *shape)
    exact = x.astype("float64") @ w.astype("float64")
    error = np.abs(results("MatMul", x, w) - exact).max(-1) / np.abs(exact).max(-1)
    assert error.max() <= ROW_LIMIT


@pytest.mark.parametrize("kind", ["second token", "one sign"])
def test_so_is_it_where_the_number_of_rows_is_open(kind):
    x, w = operands(kind, 24, 2048, 64)
    x = x[0]
    exact = x.astype("float64") @ w.astype("float64")
    error = np.abs(results("MatMul", x, w, is_open=True) - exact).max(-1) / np.abs(exact).max(-1)
    assert error.max() <= ROW_LIMIT


def test_a_row_does_not_depend_on_its_neighbors():
    x, w = operands("plain", 64, 768, 256)
    with_nan = x.copy()
    with_nan[0, 1::2] = np.nan
    plain, other = results("MatMul", x, w), results("MatMul", with_nan, w)
    np.testing.assert_array_equal(plain[0, ::2], other[0, ::2])
    assert np.isnan(other[0, 1::2]).all()


def test_only_the_fast_precision_pairs_rows():
    """What the promise of the default is worth: Strassen's product does not keep it."""
    x, w = operands("second token", 128, 768, 3072)
    exact = x.astype("float64") @ w.astype("float64")
    error = np.abs(results("MatMul", x, w, "fast") - exact).max(-1) / np.abs(exact).max(-1)
    assert error.max() > 1e-4


# --- Winograd ------------------------------------------------------------------------------


def images(channels=64, size=40):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, channels, size, size)).astype("float32")
    w = (rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)).astype("float32")
    return x, w


def convolved(x, w):
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype("float64"), optimize=True)


@pytest.mark.parametrize("channels", [64, 256])
def test_convolutions_of_random_images_are_within_1e_5(channels):
    x, w = images(channels)
    exact = convolved(x, w)
    y = results("Conv", x, w, pads=[1] * 4)
    assert np.abs(y - exact).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_tile(value):
    x, w = images()
    plain = results("Conv", x, w, pads=[1] * 4)
    x[0, 3, 20, 20] = value
    y = results("Conv", x, w, pads=[1] * 4)
    changed = (y != plain).any(axis=(0, 1))
    rows, columns = np.nonzero(changed)
    assert not np.isfinite(y[..., 19:22, 19:22]).any()
    # A tile of the largest size has 6 results along an axis, and its window reads 8.
    assert rows.min() >= 20 - 7 and rows.max() <= 20 + 7
    assert columns.min() >= 20 - 7 and columns.max() <= 20 + 7


def test_the_error_of_a_pixel_is_relative_to_its_tile():
    x, w = images()
    x *= np.float32(1e-2)
    x[0, :, 20, 20] = 1e4
    y, exact = results("Conv", x, w, pads=[1] * 4), convolved(x, w)
    error = np.abs(y - exact)[0].max(axis=0)
    far = np.ones_like(error, bool)
    far[20 - 7 : 20 + 8, 20 - 7 : 20 + 8] = False
    assert error[far].max() <= 1e-5 * np.abs(exact[0][:, far]).max()
    assert error.max() <= 1e-5 * np.abs(exact).max()
