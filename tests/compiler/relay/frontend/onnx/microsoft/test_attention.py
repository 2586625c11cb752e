"""Attention in onnxruntime's own operators: masks, caches and packed operands."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.relay.frontend import from_onnx
from tests.compiler.relay.frontend.onnx.microsoft.nodes import own

BATCH, ROWS, HEADS, COLUMNS = 2, 3, 2, 4
HIDDEN = HEADS * COLUMNS


def integers(*values):
    return np.array(values, "int32")


MASKS = {
    "raw": integers([1, 1, 0], [1, 0, 1]),
    "of_rows": integers([[1, 0, 0], [1, 1, 0], [0, 1, 1]], [[1, 1, 1], [0, 0, 0], [1, 0, 1]]),
    "ends": integers(2, 3),
    "ends_and_begins": integers(2, 3, 1, 2),
    "lengths": integers(1, 2, 0, 3, 6, 0, 3, 6),
}


@pytest.fixture
def projection(floats):
    return {"w": floats(5, 3 * HIDDEN), "b": floats(3 * HIDDEN)}


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_agrees_with_every_mask(unidirectional, as_onnxruntime, floats, projection):
    common = {"num_heads": HEADS, "unidirectional": unidirectional}
    nodes = [own("Attention", f"x w b {name}", f"y{name}", **common) for name in MASKS]
    nodes += [
        own("Attention", "x w b", "y0", scale=0.3, **common),
        own("Attention", "x w", "y1", **common),
        own("Attention", "x w b raw  bias", "y2", mask_filter_value=-3.0, **common),
    ]
    feeds = {"x": floats(BATCH, ROWS, 5), **MASKS, "bias": floats(1, HEADS, ROWS, ROWS)}
    as_onnxruntime(nodes, feeds, projection)


def test_attention_agrees_with_a_past_and_values_of_another_width(
    as_onnxruntime, floats, projection
):
    nodes = [
        own("Attention", "x w b  past", "y0 y1", num_heads=HEADS),
        own("Attention", "x w b mask past", "y2 y3", num_heads=HEADS, unidirectional=1),
        own("Attention", "x v c", "y4", num_heads=HEADS, qkv_hidden_sizes=[8, 8, 6]),
    ]
    feeds = {
        "x": floats(BATCH, ROWS, 5),
        "past": floats(2, BATCH, HEADS, 2, COLUMNS),
        "mask": integers([0, 1, 1, 1, 1], [1, 1, 1, 1, 0]),
    }
    as_onnxruntime(nodes, feeds, {**projection, "v": floats(5, 22), "c": floats(22)})


def test_a_square_mask_is_one_of_rows(model, run, floats, projection):
    square = np.tril(np.ones((BATCH, 1, 4, 4), "int32"))
    weights = {**projection, "square": square, "rows": square[:, 0, 1:, :]}
    nodes = [
        own("Attention", f"x w b {name} past", name[0], num_heads=HEADS)
        for name in ("square", "rows")
    ]
    feeds = {"x": floats(BATCH, ROWS, 5), "past": floats(2, BATCH, HEADS, 1, COLUMNS)}
    shapes = {name: value.shape for name, value in feeds.items()}
    proto = model(nodes, shapes, ["s", "r"], weights, domains={"com.microsoft": 1})
    results = run(*from_onnx(proto), feeds)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ("x w b", {"do_rotary": 1}, "do_rotary=1 is not supported"),
        ("x w b", {"past_present_share_buffer": 1}, "past_present_share_buffer=1"),
        ("x w b m", {}, r"a mask of shape (2, 7) is not supported"),
        ("x w b", {"qkv_hidden_sizes": [8, 8, 4]}, "are not q, k and v of [8, 8, 4]"),
    ],
)
def test_forms_of_attention_are_refused(inputs, attributes, message, refusal, floats, projection):
    node = own("Attention", inputs, "y", num_heads=HEADS, **attributes)
    weights = {**projection, "m": np.ones((BATCH, 7), "int32")}
    assert message in refusal(node, {"x": floats(BATCH, ROWS, 5)}, weights)


def test_multi_head_attention_agrees(as_onnxruntime, floats):
    nodes = [
        own("MultiHeadAttention", "q k v", "y0", num_heads=HEADS),
        own("MultiHeadAttention", "q k v b", "y1", num_heads=HEADS, scale=0.7),
        own("MultiHeadAttention", "q k v b pad", "y2", num_heads=HEADS, mask_filter_value=-2.0),
        own("MultiHeadAttention", "q k v  ends", "y3", num_heads=HEADS),
        own("MultiHeadAttention", "q k v b rows bias", "y4", num_heads=HEADS),
        own("MultiHeadAttention", "q k4 v4", "y5", num_heads=HEADS),
        own("MultiHeadAttention", "q k4 v4 b", "y6", num_heads=HEADS),
        own("MultiHeadAttention", "q q q", "y7 y8 y9 y10", num_heads=HEADS, unidirectional=1),
        own("MultiHeadAttention", "q k v b rows bias", "y11   y12", num_heads=HEADS),
    ]
    feeds = {
        "q": floats(BATCH, ROWS, HIDDEN),
        "k": floats(BATCH, 5, HIDDEN),
        "v": floats(BATCH, 5, HIDDEN),
        "k4": floats(BATCH, HEADS, 5, COLUMNS),
        "v4": floats(BATCH, HEADS, 5, COLUMNS),
        "pad": integers([1, 1, 0, 1, 0], [0, 1, 1, 1, 1]),
        "ends": integers(2, 5),
        "rows": np.tril(np.ones((BATCH, ROWS, 5), "int32"), 1),
        "bias": floats(BATCH, 1, ROWS, 5),
    }
    as_onnxruntime(nodes, feeds, {"b": floats(3 * HIDDEN)})


def test_multi_head_attention_agrees_with_a_past(as_onnxruntime, floats):
    nodes = [
        own("MultiHeadAttention", "q k v b   pk pv", "y0 y1 y2", num_heads=HEADS),
        own(
            "MultiHeadAttention", "q k v  pad  pk pv", "y3 y4 y5", num_heads=HEADS, unidirectional=1
        ),
    ]
    feeds = {name: floats(BATCH, ROWS, HIDDEN) for name in "qkv"}
    feeds |= {name: floats(BATCH, HEADS, 2, COLUMNS) for name in ("pk", "pv")}
    feeds["pad"] = integers([0, 1, 1, 1, 1], [1, 1, 1, 0, 1])
    as_onnxruntime(nodes, feeds, {"b": floats(3 * HIDDEN)})


def test_packed_operands_are_their_parts(model, run, floats):
    packed = floats(BATCH, ROWS, HEADS, 3, COLUMNS)
    q, k, v = (packed[..., i, :].reshape(BATCH, ROWS, HIDDEN) for i in range(3))
    feeds = {"p": packed, "kv": packed[..., 1:, :].copy(), "q": q, "k": k, "v": v}
    nodes = [
        own("MultiHeadAttention", inputs, output, num_heads=HEADS)
        for inputs, output in (("p   b", "y0"), ("q kv  b", "y1"), ("q k v b", "y2"))
    ]
    shapes = {name: value.shape for name, value in feeds.items()}
    weights = {"b": floats(3 * HIDDEN)}
    proto = model(nodes, shapes, ["y0", "y1", "y2"], weights, domains={"com.microsoft": 1})
    first, second, plain = run(*from_onnx(proto), feeds)
    np.testing.assert_allclose(first, plain, 1e-6, 1e-6)
    np.testing.assert_allclose(second, plain, 1e-6, 1e-6)


def test_quantized_attention_agrees(as_onnxruntime, floats, rng):
    nodes = [
        own("QAttention", "x w b xs ws ends xz wz", "y0", num_heads=HEADS),
        own("QAttention", "x w b xs columns", "y1", num_heads=HEADS, unidirectional=1),
        own("QAttention", "x w b xs ws  xz wz past", "y2 y3", num_heads=HEADS, unidirectional=1),
    ]
    weights = {
        "w": rng.integers(0, 255, (5, 3 * HIDDEN)).astype("uint8"),
        "b": floats(3 * HIDDEN),
        "xs": np.array(0.02, "float32"),
        "ws": np.array(0.015, "float32"),
        "columns": (0.01 + 0.02 * rng.random(3 * HIDDEN)).astype("float32"),
        "xz": np.array(120, "uint8"),
        "wz": np.array(130, "uint8"),
    }
    feeds = {
        "x": rng.integers(0, 255, (BATCH, ROWS, 5)).astype("uint8"),
        "ends": integers(2, 3),
        "past": floats(2, BATCH, HEADS, 2, COLUMNS),
    }
    as_onnxruntime(nodes, feeds, weights)


def test_attention_becomes_the_kernels_of_a_model_that_spells_it_out(model, floats):
    def kernels(nodes, weights):
        shapes, types = {"x": (1, 32, 64), "m": (1, 32)}, {"m": TensorProto.INT32}
        domains = {"com.microsoft": 1}
        proto = model(nodes, shapes, ["y"], weights, domains=domains, dtypes=types)
        with tvm.transform.PassContext(opt_level=3):
            report = relay.build(from_onnx(proto)[0], "llvm").report
        return sorted((kernel.operators, kernel.calls) for kernel in report.kernels)

    weights, biases = floats(64, 192), floats(192)
    fused = own("Attention", "x w b m", "y", num_heads=2)
    spelled, parts = [], {}
    for name, weight, bias in zip("qkv", np.split(weights, 3, 1), np.split(biases, 3)):
        parts |= {f"w{name}": weight.copy(), f"b{name}": bias.copy()}
        spelled.append(helper.make_node("MatMul", ["x", f"w{name}"], [f"p{name}"]))
        spelled.append(helper.make_node("Add", [f"p{name}", f"b{name}"], [name]))
    spelled.append(own("MultiHeadAttention", "q k v  m", "y", num_heads=2))
    found = kernels([fused], {"w": weights, "b": biases})
    assert found == kernels(spelled, parts)
    assert any("attention" in operators for operators, _ in found) and len(found) == 3
