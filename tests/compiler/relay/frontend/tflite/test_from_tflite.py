"""`from_tflite` on models written here, against numpy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tvm

from compiler import legacy, relay
from compiler.errors import FrontendError, UnsupportedOperatorError

pytest.importorskip("tflite", reason="the tflite package is not installed: the extra 'tflite'")
_spec = importlib.util.spec_from_file_location(
    "model_writer", Path(__file__).with_name("model_writer.py")
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


def quantized_network(
    activation: str = "int8", **numbers: tuple[list[float], list[int], int]
) -> bytes:
    """QUANTIZE, convolution with ReLU6, depthwise one, residual sum, mean, dense, softmax."""
    rng = np.random.default_rng(4)
    model = _written.ModelWriter()

    def tensor(name: str, shape: tuple[int, ...], scale: float, zero: int) -> int:
        return model.tensor(name, shape, activation, numbers.get(name, ([scale], [zero], 0)))

    def weights(name: str, shape: tuple[int, ...], axis: int, scale: float) -> list[int]:
        """With a bias, for data of a scale."""
        scales, zeros = rng.uniform(0.002, 0.01, shape[axis]), [0] * shape[axis]
        known = numbers.get(name, (scales.tolist(), zeros, axis))
        bias = rng.integers(-900, 900, len(zeros)).astype(
            "int32" if activation == "int8" else "int64"
        )
        return [
            model.constant(name, rng.integers(-127, 128, shape, "int8"), known),
            model.constant(f"{name} bias", bias, ((scales * scale).tolist(), zeros, 0)),
        ]

    image = model.tensor("image", (1, 8, 8, 3))
    data = tensor("data", (1, 8, 8, 3), 0.02, 3)
    first = tensor("first", (1, 8, 8, 16), 6 / 255, -128)
    second = tensor("second", (1, 8, 8, 16), 0.03, 5)
    both = tensor("both", (1, 8, 8, 16), 0.04, -20)
    pooled = tensor("pooled", (1, 16), 0.04, -20)
    scores, shares = tensor("scores", (1, 8), 0.05, 2), tensor("shares", (1, 8), 1 / 256, -128)
    result = model.tensor("result", (1, 8))
    same = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    model.operator("QUANTIZE", [image], [data], "QuantizeOptions")
    given = [data, *weights("filter", (16, 3, 3, 3), 0, 0.02)]
    model.operator("CONV_2D", given, [first], "Conv2DOptions", FusedActivationFunction=3, **same)
    given = [first, *weights("depths", (1, 3, 3, 16), 3, 6 / 255)]
    kind = "DepthwiseConv2DOptions"
    model.operator("DEPTHWISE_CONV_2D", given, [second], kind, DepthMultiplier=1, **same)
    model.operator("ADD", [first, second], [both], "AddOptions")
    axes = model.constant("axes", np.array([1, 2], "int32"))
    model.operator("MEAN", [both, axes], [pooled], "ReducerOptions", KeepDims=False)
    given = [pooled, *weights("dense", (8, 16), 0, 0.04)]
    model.operator("FULLY_CONNECTED", given, [scores], "FullyConnectedOptions")
    model.operator("SOFTMAX", [scores], [shares], "SoftmaxOptions", Beta=1.0)
    model.operator("DEQUANTIZE", [shares], [result], "DequantizeOptions")
    return model.finish([image], [result])


def test_a_quantized_network_runs_on_integers() -> None:
    mod, params = relay.frontend.from_tflite(quantized_network())
    library = relay.build(mod, "llvm", params=params)
    assert not library.report.notes
    used = [each.operands for each in library.report.kernels if each.operands]
    assert used == ["uint8 x int8"] * 3
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["ComputeOnIntegers"]):
        wide = relay.build(mod, "llvm", params=params)
    image = np.random.default_rng(5).uniform(-2, 2, (1, 8, 8, 3)).astype("float32")
    got, expected = (result_of(each, image) for each in (library, wide))
    assert np.ptp(expected) > 0.2
    assert np.abs(got - expected).max() < 1.5 / 256


def test_activations_of_int16_are_computed_in_float32_and_the_report_says_so() -> None:
    zeros = {"data": 0, "first": 0, "second": 0, "both": 0, "pooled": 0, "scores": 0, "shares": 0}
    numbers = {
        name: ([1e-3 if name != "shares" else 1 / 32768], [zero], 0) for name, zero in zeros.items()
    }
    mod, params = relay.frontend.from_tflite(quantized_network("int16", **numbers))
    library = relay.build(mod, "llvm", params=params)
    assert len(library.report.notes) == 3 and "its data are int16" in library.report.notes[0]
    image = np.random.default_rng(5).uniform(-2, 2, (1, 8, 8, 3)).astype("float32")
    assert abs(result_of(library, image).sum() - 1) < 1e-3


@pytest.mark.parametrize(
    ("name", "numbers", "message"),
    [
        ("first", ([0.0], [0], 0), "CONV_2D.*'first' has a scale that is not a positive"),
        ("filter", ([float("nan")] * 16, [0] * 16, 0), "CONV_2D.*'filter' has a scale that is not"),
        ("filter", ([0.1] * 16, [0] * 4, 0), "'filter' has 16 scales and 4 zero points"),
        ("depths", ([0.1] * 5, [0] * 5, 3), "DEPTHWISE_CONV_2D.*5 scales along axis 3 of .*16"),
        ("both", ([0.1], [200], 0), "ADD.*'both' has a zero point that is not a number of int8"),
    ],
)
def test_wrong_scales_and_zero_points_are_refused(name, numbers, message) -> None:
    with pytest.raises(UnsupportedOperatorError, match=message):
        relay.frontend.from_tflite(quantized_network(**{name: numbers}))


def result_of(library, image: np.ndarray) -> np.ndarray:
    executor = library["default"](tvm.cpu())
    executor.set_input("image", image)
    executor.run()
    return executor.get_output(0).numpy()


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
    with legacy.installed():
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
