"""Rotary embeddings, and attention with grouped heads and caches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.relay.frontend.onnx.microsoft.nodes import own

BATCH, ROWS, HEADS, GROUPS, COLUMNS = 2, 3, 4, 2, 16


def integers(*values):
    return np.array(values, "int32")


@pytest.fixture
def tables(floats):
    angles = floats(8, COLUMNS // 2)
    return {"cos": np.cos(angles), "sin": np.sin(angles)}


def test_rotary_embeddings_agree(as_onnxruntime, floats, tables):
    nodes = [
        own("RotaryEmbedding", "x first cos sin", "y0"),
        own("RotaryEmbedding", "x at cos sin", "y1", interleaved=1),
        own("RotaryEmbedding", "x4 at cos sin", "y2", scale=2.0),
        own("RotaryEmbedding", "x at c s", "y3", num_heads=HEADS, rotary_embedding_dim=4),
        own(
            "RotaryEmbedding",
            "x4 first c s",
            "y4",
            num_heads=HEADS,
            rotary_embedding_dim=4,
            interleaved=1,
        ),
    ]
    weights = {**tables, "c": tables["cos"][:, :2].copy(), "s": tables["sin"][:, :2].copy()}
    feeds = {
        "x": floats(BATCH, ROWS, HEADS * COLUMNS),
        "x4": floats(BATCH, HEADS, ROWS, COLUMNS),
        "first": np.array([3]),
        "at": np.array([[0, 1, 2], [5, 4, 7]]),
    }
    as_onnxruntime(nodes, feeds, weights)


FORMS = {
    "plain": {},
    "window": {"local_window_size": 2},
    "capped": {"softcap": 0.5, "scale": 0.6},
    "smooth": {"smooth_softmax": 1},
    "rotary": {"do_rotary": 1},
    "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
}


def grouped(inputs, outputs, **attributes):
    return own(
        "GroupQueryAttention", inputs, outputs, num_heads=HEADS, kv_num_heads=GROUPS, **attributes
    )


def prompt(floats, rows):
    return {
        "q": floats(BATCH, rows, HEADS * COLUMNS),
        "k": floats(BATCH, rows, GROUPS * COLUMNS),
        "v": floats(BATCH, rows, GROUPS * COLUMNS),
    }


def test_prompts_of_grouped_attention_agree(as_onnxruntime, floats, tables):
    nodes = [
        grouped("q k v   last total cos sin", f"y{name} y{name}k y{name}v", **attributes)
        for name, attributes in FORMS.items()
    ]
    nodes += [
        grouped("packed     last total cos sin at", "y0 y1 y2", do_rotary=1),
        grouped("q k v   last total    bias sink", "y3 y4 y5"),
        grouped("q k v   last total", "y6 y7 y8 y9", qk_output=2),
        grouped("q k v   last total", "y10 y11 y12", causal=0),
    ]
    feeds = {
        **prompt(floats, ROWS),
        "packed": floats(BATCH, ROWS, (HEADS + 2 * GROUPS) * COLUMNS),
        "last": integers(ROWS - 1, ROWS - 1),
        "bias": floats(1, HEADS, ROWS, ROWS),
        "at": np.array([[0, 1, 2], [0, 1, 2]]),
    }
    weights = {**tables, "total": integers(ROWS), "sink": floats(HEADS)}
    as_onnxruntime(nodes, feeds, weights)


@pytest.mark.parametrize(("held", "total"), [(4, 5), (6, 5)])
def test_steps_of_grouped_attention_agree_with_a_cache(held, total, as_onnxruntime, floats, tables):
    nodes = [
        grouped("q k v pk pv last total cos sin", f"y{name} k{name} v{name}", **attributes)
        for name, attributes in FORMS.items()
    ]
    nodes.append(grouped("q k v pk pv last total", "y0 k0 v0"))
    feeds = {
        **prompt(floats, 1),
        "pk": floats(BATCH, GROUPS, held, COLUMNS),
        "pv": floats(BATCH, GROUPS, held, COLUMNS),
        "last": integers(4, 2),
    }
    weights = {**tables, "total": integers(total)}
    as_onnxruntime(nodes, feeds, weights)


def test_caches_keep_what_is_past_and_get_what_is_new(model, run, floats):
    from compiler.relay.frontend import from_onnx

    node = grouped("q k v pk pv last total", "y nk nv")
    feeds = {
        **prompt(floats, 2),
        "pk": floats(BATCH, GROUPS, 6, COLUMNS),
        "pv": floats(BATCH, GROUPS, 6, COLUMNS),
        "last": integers(4, 1),
    }
    shapes = {name: value.shape for name, value in feeds.items()}
    weights = {"total": integers(5)}
    proto = model(
        [node], shapes, ["y", "nk", "nv"], weights, domains={"com.microsoft": 1}, dtypes={"last": 6}
    )
    _, keys, values = run(*from_onnx(proto), feeds)
    for present, past, new in ((keys, "pk", "k"), (values, "pv", "v")):
        assert present.shape == (BATCH, GROUPS, 6, COLUMNS)
        heads = feeds[new].reshape(BATCH, 2, GROUPS, COLUMNS).transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(present[0, :, :3], feeds[past][0, :, :3])
        np.testing.assert_array_equal(present[0, :, 3:5], heads[0])
        np.testing.assert_array_equal(present[1, :, :2], heads[1])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"k_quant_type": "PER_TENSOR"}, "quantized caches are not supported"),
        ({"sliding_window_cache": 1}, "a cache of the window's size is not supported"),
    ],
)
def test_forms_of_grouped_attention_are_refused(attributes, message, refusal, floats):
    node = grouped("q k v   last total", "y", **attributes)
    weights = {"last": integers(2, 2), "total": integers(ROWS)}
    assert message in refusal(node, prompt(floats, ROWS), weights)


def test_the_total_length_must_be_known(refusal, floats):
    node = grouped("q k v   last total", "y")
    feeds = {**prompt(floats, ROWS), "last": integers(2, 2), "total": integers(ROWS)}
    assert "the total sequence length (input 6) must be a constant" in refusal(node, feeds)
