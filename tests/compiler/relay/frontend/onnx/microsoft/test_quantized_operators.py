"""Quantized operators of onnxruntime's own domain, and products with packed weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.relay.frontend.onnx.microsoft.nodes import own


@pytest.fixture
def codes(rng):
    """Integers of a shape and dtype, over all of its range."""
    return lambda dtype, *shape: rng.integers(
        np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True
    )


def scales(**values):
    return {name: np.array(value, "float32") for name, value in values.items()}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_elementwise_operators_agree(dtype, as_onnxruntime, codes):
    low = np.iinfo(dtype).min
    weights = {
        **scales(sx=0.03, sz=0.05, sy=0.07, small=0.005),
        **{f"z{i}": np.array(low + 100 + i, dtype) for i in range(3)},
        "first": np.array(low, dtype),
        "table": codes(dtype, 1, 4),
    }
    nodes = [
        own("QLinearAdd", "x sx z0 z sz z1 sy z2", "y0"),
        own("QLinearAdd", "x sx z0 table sz z1 sy z2", "y1"),
        own("QLinearMul", "x sx z0 z sz z1 sy z2", "y2"),
        own("QLinearSigmoid", "x sx z0 small first", "y3"),
        own("QLinearLeakyRelu", "x sx z0 sy z2", "y4", alpha=0.3),
        own("QLinearSoftmax", "x sx z0 small first", "y5", axis=1, opset=13),
        own("QLinearSoftmax", "x sx z0 small first", "y6", axis=1, opset=12),
        own("QLinearWhere", "c x sx z0 z sz z1 sy z2", "y7"),
        own("QLinearConcat", "sy z2 x sx z0 z sz z1", "y8", axis=1),
        own("QLinearConcat", "sx z0 x sx z0 z sx z0", "y9", axis=-1),
    ]
    feeds = {
        "x": codes(dtype, 2, 3, 4),
        "z": codes(dtype, 2, 3, 4),
        "c": codes("uint8", 3, 1) > 127,
    }
    results = dict.fromkeys((f"y{i}" for i in range(10)), dtype)
    as_onnxruntime(nodes, feeds, weights, steps=1, dtypes=results)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_pooling_agrees(dtype, as_onnxruntime, codes):
    zero = np.array(np.iinfo(dtype).min + 120, dtype)
    weights = {**scales(sx=0.03, sy=0.02), "zx": zero, "zy": zero + np.array(3, dtype)}
    window = {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1]}
    nodes = [
        own("QLinearAveragePool", "x sx zx sy zy", "y0", **window),
        own("QLinearAveragePool", "x sx zx sy zy", "y1", count_include_pad=1, **window),
        own("QLinearAveragePool", "x sx zx sy zy", "y2", strides=[2, 2], ceil_mode=1, **window),
        own("QLinearAveragePool", "x sx zx sy zy", "y3", channels_last=1, **window),
        own("QLinearGlobalAveragePool", "x sx zx sy zy", "y4"),
        own("QLinearGlobalAveragePool", "x sx zx sy zy", "y5", channels_last=1),
        own("NhwcMaxPool", "x", "y6", kernel_shape=[2, 3], pads=[1, 0, 0, 1]),
    ]
    results = dict.fromkeys((f"y{i}" for i in range(7)), dtype)
    as_onnxruntime(nodes, {"x": codes(dtype, 2, 5, 6, 4)}, weights, steps=1, dtypes=results)


@pytest.mark.parametrize("last", [0, 1])
def test_quantized_convolutions_agree(last, as_onnxruntime, codes):
    weights = {
        **scales(sx=0.02, sy=0.4, sw=[0.01, 0.02, 0.015]),
        "zx": np.array(120, "uint8"),
        "zy": np.array(130, "uint8"),
        "zw": np.zeros(3, "int8"),
        "w": codes("int8", 3, 2, 3, 3)
        // 2,  # without VNNI, onnxruntime saturates pairs of products
        "b": np.array([300, -200, 10], "int32"),
    }
    node = own("QLinearConv", "x sx zx w sw zw sy zy b", "y", channels_last=last, pads=[1, 0, 1, 0])
    shape = (1, 5, 6, 2) if last else (1, 2, 5, 6)
    as_onnxruntime([node], {"x": codes("uint8", *shape)}, weights, steps=1, dtypes={"y": "uint8"})


def test_quantized_products_agree(as_onnxruntime, codes, floats):
    weights = {
        **scales(sa=0.02, sb=0.01, sy=0.5, columns=[0.01, 0.02, 0.015, 0.03]),
        "za": np.array(120, "uint8"),
        "zb": np.array(3, "int8"),
        "zeros": np.array([1, -2, 3, 0], "int8"),
        "zy": np.array(130, "uint8"),
        "b": codes("int8", 5, 4) // 2,
        "t": codes("int8", 4, 5) // 2,
        "c": np.array([300, -200, 10, 0], "int32"),
        "bias": floats(4),
        "i": codes("int16", 5, 4),
    }
    nodes = [
        own("QGemm", "a sa za b sb zb c sy zy", "q0"),
        own("QGemm", "a sa za b columns zeros c", "y0", alpha=0.5),
        own("QGemm", "r sa za t sb zb", "y1", transA=1, transB=1),
        own("MatMulIntegerToFloat", "a b sa sb", "y2"),
        own("MatMulIntegerToFloat", "a b sa columns za zeros bias", "y3"),
        own("DynamicQuantizeMatMul", "x b sb", "y4"),
        own("DynamicQuantizeMatMul", "x b columns zeros bias", "y5"),
        own("MatMulInteger16", "n i", "y6"),
    ]
    a = codes("uint8", 3, 5)
    feeds = {"a": a, "r": a.T.copy(), "x": floats(2, 3, 5), "n": codes("int16", 3, 5)}
    as_onnxruntime(nodes, feeds, weights, 1e-4, dtypes={"y6": "int32"})
    feeds = {"a": a}
    nodes[0].output[0] = "y"
    as_onnxruntime(nodes[:1], feeds, weights, steps=1, dtypes={"y": "uint8"})


def test_what_only_other_devices_have_is_computed(computes, codes):
    x, z = codes("int8", 2, 3), codes("int8", 2, 3)
    weights = {"zx": np.array(3, "int8"), **scales(sx=0.5, sy=0.5)}
    nodes = [
        own("MulInteger", "x zx z", "y0"),
        own("ReduceSumInteger", "x", "y1", axes=[1], keepdims=0),
        own("QLinearReduceMean", "x sx zx sy zx", "y2", axes=[1], keepdims=1),
    ]
    wide = x.astype("int32")
    expected = {
        "y0": (wide - 3) * z,
        "y1": wide.sum(1, dtype="int32"),
        "y2": np.rint(wide.mean(1, keepdims=True)).astype("int8"),
    }
    computes(nodes, {"x": x, "z": z}, expected, weights)


def test_linear_quantization_agrees(as_onnxruntime, codes, floats):
    weights = {
        **scales(s=0.02, columns=[0.01, 0.02, 0.015, 0.03]),
        "z": np.array(120, "uint8"),
        "zeros": np.array([1, -2, 3, 0], "int8"),
    }
    nodes = [
        own("DequantizeLinear", "x s z", "y0"),
        own("DequantizeLinear", "i columns zeros", "y1", axis=1),
        own("QuantizeLinear", "f s z", "y2"),
        own("QuantizeLinear", "f columns zeros", "y3", axis=1),
    ]
    feeds = {"x": codes("uint8", 2, 4), "i": codes("int8", 2, 4, 3), "f": floats(2, 4)}
    as_onnxruntime(nodes, feeds, weights, dtypes={"y2": "uint8", "y3": "int8"})


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_with_packed_weights_agree(bits, as_onnxruntime, codes, floats):
    n, k, size = 5, 40, 16
    blocks = 3
    weights = {
        "w": codes("uint8", n, blocks, size * bits // 8),
        "s": np.abs(floats(n, blocks)) / 64,
        "z": codes("uint8", n, -(-blocks * bits // 8)),
        "b": floats(n),
    }
    common = {"N": n, "K": k, "block_size": size, "bits": bits}
    nodes = [
        own("MatMulNBits", "x w s", "y0", **common),
        own("MatMulNBits", "x w s z", "y1", accuracy_level=1, **common),
        own("MatMulNBits", "x w s   b", "y2", **common),
    ]
    as_onnxruntime(nodes, {"x": floats(2, 3, k)}, weights, 1e-4)


@pytest.mark.parametrize("kind", [0, 1])
def test_products_with_codes_agree(kind, as_onnxruntime, codes, floats):
    n, k = 6, 32
    common = {"N": n, "K": k, "block_size": 16, "quant_type": kind}
    weights = {"w": codes("uint8", n * k // 2), "s": np.abs(floats(n * k // 16))}
    node = own("MatMulBnb4", "x w s", "y", **common)
    as_onnxruntime([node], {"x": floats(2, 3, k)}, weights, 1e-4)


def test_weights_packed_for_a_gpu_are_refused(refusal, codes, floats):
    node = own("MatMulNBits", "x w s", "y", N=4, K=16, block_size=16, weight_prepacked=1)
    weights = {"w": codes("uint8", 4, 1, 8), "s": floats(4, 1)}
    assert "packed for a GPU" in refusal(node, {"x": floats(2, 16)}, weights)


def test_attributes_that_are_required_are_named(refusal, codes, floats):
    node = own("MatMulNBits", "x w s", "y", K=16, block_size=16)
    weights = {"w": codes("uint8", 4, 1, 8), "s": floats(4, 1)}
    assert "the attribute N is missing" in refusal(node, {"x": floats(2, 16)}, weights)
