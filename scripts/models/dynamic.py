"""Networks of `dynamic_shapes.py`: any batch, texts and sounds of any length, images of any size.

bert_base and minilm are the bundled ones. The others have random weights: encoders like DistilBERT
and Whisper's, decoders like GPT-2 and LLaMA on a prompt, vision transformers, ConvNeXt, VGG and
wav2vec2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.models.fill_weights import hydrate
from scripts.models import any_size, onnx_models
from scripts.models.decoders import Graph, decoder
from scripts.models.symbolic_extents import with_any_batch, with_symbols

OPSET, IR = 20, 9
Input = tuple[str, int, Sequence[int | str]]
POSITIONS = 512
"""Texts may be so long."""


def distilbert(layers: int, width: int, heads: int, vocabulary: int = 4096) -> onnx.ModelProto:
    """Inputs ids and mask (batch, seq) int64; scores of padding are set to the least float."""
    g = Graph(0)
    zero, one = g.constant(0), g.constant(1)
    shape = g("Shape", "ids")
    batch, seq = g("Gather", shape, zero), g("Gather", shape, one)
    at = g("Unsqueeze", g("Range", zero, seq, one), g.constant([0]))
    x = g("Gather", g.weight(vocabulary, width), "ids")
    x = _normal(g, g("Add", x, g("Gather", g.weight(POSITIONS, width), at)), width)
    hidden = g("Equal", "mask", zero)
    sizes = [g("Unsqueeze", each, g.constant([0])) for each in (batch, seq)]
    four = g("Concat", sizes[0], g.constant([1, 1]), sizes[1], axis=0)
    all_heads = g("Concat", sizes[0], g.constant([heads]), sizes[1], sizes[1], axis=0)
    hidden = g("Expand", g("Reshape", hidden, four), all_heads)
    for _ in range(layers):
        x = _normal(g, g("Add", x, _attention(g, x, width, heads, hidden)), width)
        inner = g("Gelu", _linear(g, x, width, 4 * width))
        x = _normal(g, g("Add", x, _linear(g, inner, 4 * width, width)), width)
    ids = [
        ("ids", TensorProto.INT64, ["batch", "seq"]),
        ("mask", TensorProto.INT64, ["batch", "seq"]),
    ]
    return _model(g, "distilbert", ids, x, ["batch", "seq", width])


def whisper(layers: int, width: int, heads: int, bands: int = 80) -> onnx.ModelProto:
    """Input sound (batch, bands, frames) float32: two convolutions, the second one of which takes
    every other frame, and layers that normalize before they compute."""
    g = Graph(0)

    def convolved(x: str, channels: int, stride: int) -> str:
        filters = g.constant(
            g.random.normal(size=(width, channels, 3)) / math.sqrt(3 * channels), "float32"
        )
        made = g("Conv", x, filters, g.weight(width), pads=[1, 1], strides=[stride])
        return str(g("Gelu", made))

    x = convolved(convolved("sound", bands, 1), width, 2)
    x = g("Transpose", x, perm=[0, 2, 1])
    zero, one = g.constant([0]), g.constant([1])
    rows = g("Gather", g("Shape", x), one)
    x = g("Add", x, g("Slice", g.weight(1500, width), zero, rows, zero, one))
    for _ in range(layers):
        x = _encoder_layer(g, x, width, heads)
    sound: list[Input] = [("sound", TensorProto.FLOAT, ["batch", bands, "frames"])]
    return _model(g, "whisper", sound, _normal(g, x, width), ["batch", "rows", width])


def _encoder_layer(g: Graph, x: str, width: int, heads: int) -> str:
    """A transformer layer that normalizes before it computes."""
    x = g("Add", x, _attention(g, _normal(g, x, width), width, heads))
    inner = g("Gelu", _linear(g, _normal(g, x, width), width, 4 * width))
    return str(g("Add", x, _linear(g, inner, 4 * width, width)))


def _image_network(name: str, build: Callable[[Graph, str], str]) -> onnx.ModelProto:
    """Input image (batch, 3, height, width) float32; scores of 1000 classes."""
    g = Graph(0)
    image: list[Input] = [("image", TensorProto.FLOAT, ["batch", 3, "height", "width"])]
    return _model(g, name, image, build(g, "image"), ["batch", 1000])


def vit_any_size(layers: int = 12, width: int = 384, heads: int = 6) -> onnx.ModelProto:
    """ViT-S/16 of any image size."""
    return _image_network(
        "vit_any_size",
        lambda g, x: any_size.vit(
            g, x, _linear, lambda g, x: _encoder_layer(g, x, width, heads), width, layers
        ),
    )


def wav2vec2(layers: int = 6, width: int = 768, heads: int = 12) -> onnx.ModelProto:
    """Input sound (batch, samples) float32; scores of 32 characters per 320 samples."""
    g = Graph(0)
    sound: list[Input] = [("sound", TensorProto.FLOAT, ["batch", "samples"])]
    scores = any_size.wav2vec2(
        g, "sound", _linear, _normal, lambda g, x: _encoder_layer(g, x, width, heads), width, layers
    )
    return _model(g, "wav2vec2", sound, scores, ["batch", "rows", 32])


def _linear(g: Graph, x: str, inner: int, outer: int) -> str:
    return str(g("Add", g("MatMul", x, g.weight(inner, outer)), g.weight(outer)))


def _normal(g: Graph, x: str, width: int) -> str:
    scale, shift = (g.constant(np.full(width, value), "float32") for value in (1, 0))
    return str(g("LayerNormalization", x, scale, shift))


def _attention(g: Graph, x: str, width: int, heads: int, hidden: str = "") -> str:
    """Self-attention; scores where `hidden` is true count for nothing."""
    head = width // heads
    split, joined = g.constant([0, 0, heads, head]), g.constant([0, 0, width])
    query, key, value = (
        g("Transpose", g("Reshape", _linear(g, x, width, width), split), perm=[0, 2, 1, 3])
        for _ in range(3)
    )
    query = g("Mul", query, g.constant(1 / math.sqrt(head), "float32"))
    scores = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
    if hidden:
        least = g.constant(np.finfo("float32").min, "float32")
        scores = g("Where", hidden, least, scores)
    mixed = g("MatMul", g("Softmax", scores, axis=-1), value)
    mixed = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
    return _linear(g, mixed, width, width)


def _model(
    g: Graph, name: str, inputs: Sequence[Input], result: str, shape: Sequence[int | str]
) -> onnx.ModelProto:
    g.nodes.append(helper.make_node("Identity", [result], ["result"]))
    made = [helper.make_tensor_value_info(*each) for each in inputs]
    output = helper.make_tensor_value_info("result", TensorProto.FLOAT, shape)
    graph = helper.make_graph(g.nodes, name, made, [output], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def _decoder(kind: str, groups: int = 0) -> onnx.ModelProto:
    sizes = {"layers": 4, "width": 768, "heads": 12, "vocabulary": 4096, "positions": 1024}
    return decoder(kind, **sizes, groups=groups, cached=False)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "minilm": lambda: with_symbols(hydrate("minilm")),
    "bert_base": lambda: with_symbols(hydrate("bert_base")),
    "distilbert": lambda: distilbert(6, 768, 12),
    "gpt2": lambda: _decoder("gpt2"),
    "llama": lambda: _decoder("llama", groups=4),
    "whisper": lambda: whisper(6, 512, 8),
    "vit": lambda: with_any_batch(onnx_models.vit(1)),
    "resnet50": lambda: with_symbols(hydrate("resnet50_v1")),
    "vit_any_size": vit_any_size,
    "convnext": lambda: _image_network(
        "convnext", lambda g, x: any_size.convnext(g, x, _linear, _normal)
    ),
    "vgg11": lambda: _image_network("vgg11", lambda g, x: any_size.vgg(g, x, _linear)),
    "wav2vec2": wav2vec2,
}


def network(name: str, folder: Path) -> Path:
    """The file of a network, made if it is not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    if not path.exists():
        onnx.save(NETWORKS[name](), path)
    return path
