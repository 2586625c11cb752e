"""Decoders of random weights with a cache of keys and values, as exporters write them.

    python -m scripts.models.decoders gpt2 gpt2.onnx --layers 2 --width 64 --heads 4
    python -m scripts.models.decoders llama llama_1b.onnx --layers 14 --width 2048 --heads 32 \
        --vocabulary 32000 --bits 4

Inputs: `ids` (1, seq) int64, and for each layer `past_key_i` and `past_value_i`
(1, heads, past, head) float32. Results: `logits` (1, seq, vocabulary), and `key_i` and `value_i`
(1, heads, past + seq, head). Without a cache, `ids` (batch, seq) is all, and `logits`
(batch, seq, vocabulary).
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32


class Graph:
    """Nodes and weights, by names that nobody has to make up."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def __call__(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{kind}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names if outputs > 1 else names[0]

    def constant(self, value: Any, dtype: str = "int64") -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        scale = 1 / math.sqrt(shape[0])
        return self.constant(self.random.normal(size=shape) * scale, "float32")

    def product_of_4_bits(self, value: str, inner: int, outer: int, accuracy: int = 0) -> str:
        """MatMulNBits with blocks of `BLOCK` weights, their scales about those of `weight`."""
        blocks = inner // BLOCK
        packed = self.random.integers(0, 256, (outer, blocks, BLOCK // 2), "uint8")
        scales = self.random.random((outer, blocks), "float32") * (0.4 / math.sqrt(inner))
        weights = [self.constant(packed, "uint8"), self.constant(scales, "float32")]
        sizes = {"K": inner, "N": outer, "bits": 4, "block_size": BLOCK}
        sizes["accuracy_level"] = accuracy
        return str(self("MatMulNBits", value, *weights, domain="com.microsoft", **sizes))


def decoder(
    kind: str,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    vocabulary: int = 256,
    positions: int = 2048,
    bits: int = 32,
    seed: int = 0,
    groups: int = 0,
    cached: bool = True,
    accuracy: int = 0,
) -> onnx.ModelProto:
    """A decoder like GPT-2 (layer norms, learned positions, GELU) or LLaMA (RMS norms, rotary
    positions, gated SiLU), by `kind`: "gpt2" or "llama".

    Products have weights of 32 or 4 `bits`; `accuracy` is the `accuracy_level` of the latter, 4 for
    activations in int8. `groups` heads of keys and values are shared by all
    heads of queries, 0: each has its own.
    """
    if kind not in ("gpt2", "llama"):
        raise SystemExit(f"there is no decoder {kind!r}; there are gpt2 and llama")
    if bits not in (4, 32):
        raise SystemExit(f"weights have 4 or 32 bits, not {bits}")
    g, head = Graph(seed), width // heads
    is_gpt, groups = kind == "gpt2", groups or heads
    zero, one, two = (g.constant(value) for value in (0, 1, 2))
    last = g.constant([-1])
    seq = g("Gather", g("Shape", "ids"), one)
    past = g("Gather", g("Shape", "past_key_0"), two) if cached else zero
    total = g("Add", past, seq)
    at = g("Range", past, total, one)
    keys_at = g("Range", zero, total, one)
    allowed = g("LessOrEqual", keys_at, g("Unsqueeze", at, g.constant([1])))
    x = g("Gather", g.constant(g.random.normal(size=(vocabulary, width)) * 0.1, "float32"), "ids")
    if is_gpt:
        x = g("Add", x, g("Gather", g.weight(positions, width), at))
    else:
        angles = np.arange(positions)[:, None] / 10000 ** (np.arange(0, head, 2) / head)
        both = np.concatenate([angles, angles], 1)
        cosines, sines = (
            g("Gather", g.constant(table, "float32"), at) for table in (np.cos(both), np.sin(both))
        )

    def norm(value: str) -> str:
        scale = g.constant(np.ones(width), "float32")
        if is_gpt:
            return g("LayerNormalization", value, scale, g.constant(np.zeros(width), "float32"))
        mean = g("ReduceMean", g("Mul", value, value), last)
        root = g("Sqrt", g("Add", mean, g.constant(1e-6, "float32")))
        return g("Mul", g("Div", value, root), scale)

    def linear(value: str, inner: int, outer: int) -> str:
        if bits == 4:
            product = g.product_of_4_bits(value, inner, outer, accuracy)
        else:
            product = g("MatMul", value, g.weight(inner, outer))
        return g("Add", product, g.weight(outer)) if is_gpt else product

    def turned(value: str) -> str:
        if is_gpt:
            return value
        first, second = g("Split", value, g.constant([head // 2, head // 2]), outputs=2, axis=-1)
        moved = g("Concat", g("Neg", second), first, axis=-1)
        return g("Add", g("Mul", value, cosines), g("Mul", moved, sines))

    def repeated(value: str) -> str:
        if groups == heads:
            return value
        rows = g("Gather", g("Shape", value), g.constant([0, 2]))
        ends = g("Split", rows, g.constant([1, 1]), outputs=2, axis=0)
        sizes = [g.constant([size]) for size in (groups, heads // groups, head)]
        wide = g("Concat", ends[0], *sizes[:2], ends[1], sizes[2], axis=0)
        wide = g("Expand", g("Unsqueeze", value, g.constant([2])), wide)
        return g("Reshape", wide, g.constant([0, heads, -1, head]))

    joined = g.constant([0, 0, width])
    results = []
    for layer in range(layers):
        normal = norm(x)
        parts = []
        for count in (heads, groups, groups):
            part = linear(normal, width, count * head)
            part = g("Reshape", part, g.constant([0, 0, count, head]))
            parts.append(g("Transpose", part, perm=[0, 2, 1, 3]))
        query, key, value = turned(parts[0]), turned(parts[1]), parts[2]
        if cached:
            key = g("Concat", f"past_key_{layer}", key, axis=2)
            value = g("Concat", f"past_value_{layer}", value, axis=2)
            results += [key, value]
        key, value = repeated(key), repeated(value)
        scores = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g("Mul", scores, g.constant(1 / math.sqrt(head), "float32"))
        scores = g("Where", allowed, scores, g.constant(-1e9, "float32"))
        mixed = g("MatMul", g("Softmax", scores, axis=-1), value)
        mixed = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = g("Add", x, linear(mixed, width, width))
        normal = norm(x)
        if is_gpt:
            inner = g("Gelu", linear(normal, width, 4 * width), approximate="tanh")
        else:
            gate = linear(normal, width, 4 * width)
            inner = g("Mul", g("Mul", gate, g("Sigmoid", gate)), linear(normal, width, 4 * width))
        x = g("Add", x, linear(inner, 4 * width, width))
    last_norm = norm(x)
    if bits == 4:
        logits = g.product_of_4_bits(last_norm, width, vocabulary, accuracy)
    else:
        logits = g("MatMul", last_norm, g.weight(width, vocabulary))

    names = ["logits"]
    layers_kept = range(layers if cached else 0)
    for layer in layers_kept:
        names += [f"key_{layer}", f"value_{layer}"]
    for name, result in zip(names, [logits, *results]):
        g.nodes.append(helper.make_node("Identity", [result], [name]))
    info = helper.make_tensor_value_info
    cache = [
        info(f"past_{part}_{layer}", TensorProto.FLOAT, [1, groups, "past", head])
        for layer in layers_kept
        for part in ("key", "value")
    ]
    batch = 1 if cached else "batch"
    inputs = [info("ids", TensorProto.INT64, [batch, "seq"]), *cache]
    kept = [1, groups, "total", head]
    shapes = [[batch, "seq", vocabulary], *([kept] * len(results))]
    outputs = [info(*each) for each in zip(names, [TensorProto.FLOAT] * len(names), shapes)]
    graph = helper.make_graph(g.nodes, kind, inputs, outputs, g.weights)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", help="gpt2 or llama")
    parser.add_argument("path", help="of the ONNX file")
    sizes = {"layers": 2, "width": 64, "heads": 4, "vocabulary": 256, "bits": 32, "accuracy": 0}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = vars(parser.parse_args())
    path = args.pop("path")
    onnx.save(decoder(**args), path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
