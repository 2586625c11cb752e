"""Operators of onnxruntime's own domain that are ONNX's in an older form, and single ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.relay.frontend.onnx.microsoft.nodes import own


def test_older_forms_agree(as_onnxruntime, floats):
    weights = {
        "axis": np.array(-2, "int32"),
        "k": np.array(1),
        "pads": np.array([[0, 1, 0, 2, -1, 0]]),
        "edge": np.array([1, 0, 0, 0, 1, 1]),
        "value": np.array([1.5], "float32"),
        "start": np.array([1], "int32"),
        "limit": np.array(7, "int32"),
        "step": np.array([2], "int32"),
        "repeated": np.array([2, 1, 1, 3, 4, 3], "float32"),
        "places": np.array([[0, 1], [1, 2]]),
        "matrix": floats(2, 3, 3),
    }
    nodes = [
        own("SampleOp", "x", "y0"),
        own("ExpandDims", "x axis", "y1"),
        own("Trilu", "x k", "y2"),
        own("Trilu", "x", "y3", upper=0),
        own("Pad", "x pads value", "y4"),
        own("Pad", "x edge", "y5", mode="edge"),
        own("Pad", "x edge", "y6", mode="reflect"),
        own("Range", "start limit step", "y7"),
        own("Range", "start limit", "y8"),
        own("Unique", "repeated", "y9 y10 y11"),
        own("GatherND", "x places", "y12"),
        own("Inverse", "matrix", "y13"),
        own("UnfoldTensor", "x", "y14", dim=1, size=2),
        own("UnfoldTensor", "x", "y15", size=2, step=2),
        own("CDist", "a b", "y16"),
        own("CDist", "a b", "y17", metric="euclidean"),
        own("GatedAdd", "x x g", "y18"),
    ]
    feeds = {"x": floats(2, 3, 4), "a": floats(3, 5), "b": floats(4, 5), "g": floats(2, 3, 1)}
    dtypes = {"y7": "int32", "y8": "int32", "y10": "int64", "y11": "int64"}
    as_onnxruntime(nodes, feeds, weights, 1e-4, dtypes=dtypes)


def test_samples_of_a_grid_agree(as_onnxruntime, floats):
    nodes = [
        own("GridSample", "x grid", "y0"),
        own("GridSample", "x grid", "y1", mode="nearest", padding_mode="border", align_corners=1),
        own("GridSample", "x grid", "y2", mode="bicubic"),
    ]
    as_onnxruntime(nodes, {"x": floats(1, 2, 4, 5), "grid": floats(1, 3, 2, 2)}, None, 1e-4)


def test_ngrams_that_would_repeat_are_blocked(as_onnxruntime, floats):
    ids = np.array([[1, 2, 3, 1, 2, 4, 1, 2], [5, 5, 5, 5, 5, 5, 5, 5]])
    nodes = [
        own("NGramRepeatBlock", "ids scores", f"y{size}", ngram_size=size) for size in (2, 3, 9)
    ]
    as_onnxruntime(nodes, {"ids": ids, "scores": floats(2, 7)})


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_packed_tables_agree(bits, as_onnxruntime, floats, rng):
    weights = {
        "t": rng.integers(0, 255, (6, 40 * bits // 8)).astype("uint8"),
        "s": np.abs(floats(6, 3)),
        "z": rng.integers(0, 255, (6, -(-3 * bits // 8))).astype("uint8"),
    }
    common = {"bits": bits, "block_size": 16}
    nodes = [
        own("GatherBlockQuantized", "t i s", "y0", **common),
        own("GatherBlockQuantized", "t i s z", "y1", **common),
    ]
    as_onnxruntime(nodes, {"i": np.array([[0, -1], [5, 3]])}, weights)


def test_what_only_other_devices_have_is_computed(computes, floats):
    x, even = floats(2, 6), floats(2, 3, 2)
    spectrum = np.fft.rfft(x)
    a, b = floats(2, 3, 2), floats(3, 2)

    def pairs(value):
        return np.stack([value.real, value.imag], -1).astype("float32")

    left, right = (value[..., 0] + 1j * value[..., 1] for value in (a, b))
    even = pairs(spectrum)
    angles, q, turned = floats(2, 3, 4), floats(2, 2, 3, 4), floats(2, 2, 3, 4)
    cos, sin = (f(angles)[:, None] for f in (np.cos, np.sin))
    nodes = [
        own("Rfft", "x", "y0", signal_ndim=1, onesided=1, normalized=0),
        own("Irfft", "even", "y1", signal_ndim=1),
        own("ComplexMul", "a b", "y2"),
        own("ComplexMulConj", "a b", "y3"),
        own("IsAllFinite", "x a", "y4"),
        own("IsAllFinite", "x bad", "y5"),
        own("IsAllFinite", "bad", "y6", isnan_only=1),
        own("TorchEmbedding", "x i", "y7"),
        own("GemmaRotaryEmbedding", "angles q turned turned q", "y8 y9"),
    ]
    feeds = {
        "x": x,
        "even": even,
        "a": a,
        "b": b,
        "bad": np.array([1, np.inf], "float32"),
        "i": np.array([1, 0, 1]),
        "angles": angles,
        "q": q,
        "turned": turned,
    }
    expected = {
        "y0": even,
        "y1": np.fft.irfft(spectrum).astype("float32"),
        "y2": pairs(left * right),
        "y3": pairs(left * right.conj()),
        "y4": np.array(True),
        "y5": np.array(False),
        "y6": np.array(True),
        "y7": x[[1, 0, 1]],
        "y8": q * cos + turned * sin,
        "y9": turned * cos + q * sin,
    }
    computes(nodes, feeds, expected)


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("Unique", {}, "which decides the result's shape, (input 0) must be a constant"),
        ("Inverse", {}, "the matrix (input 0) must be a constant"),
        ("Rfft", {"signal_ndim": 2}, "only one-sided transforms of one axis"),
        ("UnfoldTensor", {"size": 9}, "no windows of 9 elements, 1 apart, along 3"),
    ],
)
def test_forms_are_refused(operator, attributes, message, refusal, floats):
    assert message in refusal(own(operator, "x", "y", **attributes), {"x": floats(3, 3)})
