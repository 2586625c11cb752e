"""`from_tflite` on models written here, against numpy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import relay
from compiler.errors import FrontendError, UnsupportedOperatorError

pytest.importorskip("tflite", reason="the tflite package is not installed: the extra 'tflite'")
_spec = importlib.util.spec_from_file_location(
    "tflite_model", Path(__file__).with_name("tflite_model.py")
)
assert _spec is not None and _spec.loader is not None
_written = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_written)


def network() -> tuple[bytes, dict[str, np.ndarray]]:
    """NHWC convolution with ReLU, mean over the image, dense, softmax."""
    rng = np.random.default_rng(0)
    weights = {
        "filter": rng.standard_normal((4, 3, 3, 2)).astype("float32"),
        "bias": rng.standard_normal(4).astype("float32"),
        "dense": rng.standard_normal((5, 4)).astype("float32"),
    }
    model = _written.ModelWriter()
    data = model.tensor("image", (1, 6, 6, 2))
    convolved = model.tensor("convolved", (1, 4, 4, 4))
    pooled = model.tensor("pooled", (1, 4))
    scores = model.tensor("scores", (1, 5))
    result = model.tensor("result", (1, 5))
    kernel = model.constant("filter", weights["filter"])
    bias = model.constant("bias", weights["bias"])
    axes = model.constant("axes", np.array([1, 2], "int32"))
    dense = model.constant("dense", weights["dense"])
    model.operator(
        "CONV_2D",
        [data, kernel, bias],
        [convolved],
        "Conv2DOptions",
        Padding=1,
        StrideH=1,
        StrideW=1,
        DilationHFactor=1,
        DilationWFactor=1,
        FusedActivationFunction=1,
    )
    model.operator("MEAN", [convolved, axes], [pooled], "ReducerOptions", KeepDims=False)
    model.operator("FULLY_CONNECTED", [pooled, dense, -1], [scores], "FullyConnectedOptions")
    model.operator("SOFTMAX", [scores], [result], "SoftmaxOptions", Beta=1.0)
    return model.finish([data], [result]), weights


def reference(image: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(image[0].astype("float64"), (3, 3), (0, 1))
    convolved = np.einsum("yxcij,oijc->yxo", windows, weights["filter"]) + weights["bias"]
    scores = weights["dense"] @ np.maximum(convolved, 0).mean((0, 1))
    exponents = np.exp(scores - scores.max())
    return (exponents / exponents.sum())[None]


def test_a_network_computes_what_numpy_does(tmp_path: Path) -> None:
    data, weights = network()
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    image = np.random.default_rng(1).standard_normal((1, 6, 6, 2)).astype("float32")
    for source in (data, path):
        mod, params = relay.frontend.from_tflite(source)
        assert params == {}
        assert [parameter.name for parameter in mod["main"].params] == ["image"]
        executor = relay.build(mod, "llvm", params=params)["default"](tvm.cpu())
        executor.set_input("image", image)
        executor.run()
        np.testing.assert_allclose(
            executor.get_output(0).numpy(), reference(image, weights), rtol=1e-5, atol=1e-6
        )


def outcome(code: str, kind: str, arrays: list[np.ndarray], result: np.ndarray, **options: object):
    """What one operator computes of the first array; the others are weights."""
    model = _written.ModelWriter()
    inputs = [model.constant(f"weight{i}", value) for i, value in enumerate(arrays[1:])]
    data = model.tensor("x", arrays[0].shape, str(arrays[0].dtype))
    inputs = [*inputs, data] if code == "TRANSPOSE_CONV" else [data, *inputs]
    output = model.tensor("y", result.shape, str(result.dtype))
    model.operator(code, inputs, [output], kind, **options)
    mod, _ = relay.frontend.from_tflite(model.finish([data], [output]))
    executor = relay.build(mod, "llvm")["default"](tvm.cpu())
    executor.set_input("x", arrays[0])
    executor.run()
    got = executor.get_output(0).numpy()
    assert got.dtype == result.dtype
    return got


ROWS = np.random.default_rng(2).standard_normal((2, 3)).astype("float32")


def test_softmax_is_scaled_by_beta() -> None:
    exponents = np.exp(2.5 * ROWS)
    expected = exponents / exponents.sum(-1, keepdims=True)
    got = outcome("SOFTMAX", "SoftmaxOptions", [ROWS], expected, Beta=2.5)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_gelu_is_approximated_where_the_model_says_so() -> None:
    inner = np.sqrt(2 / np.pi) * (ROWS + 0.044715 * ROWS**3)
    expected = (0.5 * ROWS * (1 + np.tanh(inner))).astype("float32")
    got = outcome("GELU", "GeluOptions", [ROWS], expected, Approximate=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


def test_a_transposed_convolution_applies_its_activation() -> None:
    image = np.float32([[[[1.0], [-2.0]], [[-3.0], [4.0]]]])
    shape, kernel = np.int32([1, 4, 4, 1]), np.ones((1, 2, 2, 1), "float32")
    expected = np.maximum(image.repeat(2, 1).repeat(2, 2), 0)
    options = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
    arrays = [image, shape, kernel]
    got = outcome("TRANSPOSE_CONV", "TransposeConvOptions", arrays, expected, **options)
    np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("keep", [False, True])
def test_a_dense_layer_keeps_the_axes_of_its_input_if_told_to(keep: bool) -> None:
    data, weight = ROWS.reshape(1, 2, 1, 3), np.float32([[1, 2, 3], [0, -1, 2]])
    expected = (data @ weight.T).reshape((1, 2, 1, 2) if keep else (2, 2))
    options = {"KeepNumDims": keep}
    got = outcome("FULLY_CONNECTED", "FullyConnectedOptions", [data, weight], expected, **options)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_nearest_pixels_with_aligned_corners_round_up() -> None:
    image, size = np.arange(8, dtype="float32").reshape(1, 4, 2, 1), np.int32([7, 2])
    expected = image[:, [0, 1, 1, 2, 2, 3, 3]]
    kind, arrays = "ResizeNearestNeighborOptions", [image, size]
    got = outcome("RESIZE_NEAREST_NEIGHBOR", kind, arrays, expected, AlignCorners=True)
    np.testing.assert_array_equal(got, expected)


def test_positions_have_the_dtype_of_the_output() -> None:
    expected = ROWS.argmax(1).astype("int32")
    got = outcome("ARG_MAX", "ArgMaxOptions", [ROWS, np.array(1, "int32")], expected, OutputType=2)
    np.testing.assert_array_equal(got, expected)


def test_an_option_that_would_be_ignored_is_refused() -> None:
    places = np.int32([[0, 2], [1, 1]])
    taken = np.take_along_axis(ROWS, places, 1)
    with pytest.raises(UnsupportedOperatorError, match=r"GATHER \(number 0.*BatchDims=1"):
        outcome("GATHER", "GatherOptions", [ROWS, places], taken, Axis=1, BatchDims=1)


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    data, _ = network()
    with pytest.raises(FrontendError, match="TFL3"):
        relay.frontend.from_tflite(b"not a model at all")
    with pytest.raises(FrontendError, match="can't be imported"):
        relay.frontend.from_tflite(data[: len(data) // 2])
    with pytest.raises(FrontendError, match="can't read"):
        relay.frontend.from_tflite(tmp_path / "absent.tflite")
    with pytest.raises(FrontendError, match="names 'data', which is not an input"):
        relay.frontend.from_tflite(data, {"data": (1, 6, 6, 2)})


def test_an_operator_without_a_converter_is_named() -> None:
    model = _written.ModelWriter()
    data, result = model.tensor("x", (2, 3)), model.tensor("y", (2, 3))
    model.operator("SKIP_GRAM", [data], [result], "SkipGramOptions")
    with pytest.raises(UnsupportedOperatorError, match="SKIP_GRAM"):
        relay.frontend.from_tflite(model.finish([data], [result]))


@pytest.mark.parametrize("name", ["keras", "tensorflow", "caffe", "paddle", "darknet", "coreml"])
def test_importers_that_are_gone_name_the_alternative(name: str) -> None:
    importer = getattr(relay.frontend, f"from_{name}")
    with pytest.raises(UnsupportedOperatorError, match=f"from_{name} is gone.*from_"):
        importer(object())
