#!/usr/bin/env python3
"""Write synthetic ONNX networks with seeded random weights, to repeat the benchmark with.

    python -m scripts.models.onnx_models FOLDER [NAME ...] [--batch 8]

Each network has the operators, shapes and dataflow of a well-known family as its exporters write
it. Weights are drawn so that activations keep about their size from layer to layer, because a
network whose values vanish or explode shows no numerical error. Bundled models, by their names, are
written for another batch, texts with their 128 tokens.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
CLASSES = 1000
TOKENS = 128


class Network:
    """An ONNX graph under construction; every method appends nodes and returns a value's name.

    `shapes` has the shape of each value, as far as methods need it.
    """

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self.name = name
        self.shapes: dict[str, tuple[int, ...]] = {"input": tuple(shape)}
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: Sequence[str], shape: Sequence[int], **attrs: Any) -> str:
        """Append one node with one result of the given shape."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attrs))
        self.shapes[name] = tuple(int(extent) for extent in shape)
        return name

    def same(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """A node whose result has the shape of its first input."""
        return self.node(kind, inputs, self.shapes[inputs[0]], **attrs)

    def constant(self, value: Any) -> str:
        """An initializer."""
        name = f"w{len(self._weights)}"
        array = np.asarray(value)
        self._weights.append(numpy_helper.from_array(array, name))
        self.shapes[name] = array.shape
        return name

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """A normally distributed float32 initializer."""
        return self.constant((self._rng.standard_normal(shape) * scale).astype("float32"))

    # ------------------------------------------------------------------ images

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        groups: int = 1,
        padding: int | tuple[int, int] | None = None,
        bias: bool = True,
        gain: float = 2.0,
    ) -> str:
        """A convolution; by default padded as "same"."""
        n, before, height, width = self.shapes[x]
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        if padding is None:
            padding = (kh // 2, kw // 2)
        ph, pw = (padding, padding) if isinstance(padding, int) else padding
        fan_in = before // groups * kh * kw
        weight = self.normal(channels, before // groups, kh, kw, scale=(gain / fan_in) ** 0.5)
        inputs = [x, weight, self.normal(channels, scale=0.1)] if bias else [x, weight]
        size = ((height + 2 * ph - kh) // stride + 1, (width + 2 * pw - kw) // stride + 1)
        return self.node(
            "Conv",
            inputs,
            (n, channels, *size),
            kernel_shape=[kh, kw],
            strides=[stride, stride],
            pads=[ph, pw, ph, pw],
            group=groups,
        )

    def norm(self, x: str) -> str:
        """Batch normalization as a node of its own."""
        channels = self.shapes[x][1]
        scale = self.constant(self._rng.uniform(0.8, 1.2, channels).astype("float32"))
        variance = self.constant(self._rng.uniform(0.8, 1.2, channels).astype("float32"))
        shift, mean = self.normal(channels, scale=0.1), self.normal(channels, scale=0.1)
        return self.same("BatchNormalization", x, scale, shift, mean, variance)

    def relu(self, x: str) -> str:
        return self.same("Relu", x)

    def relu6(self, x: str) -> str:
        return self.same("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def hard_swish(self, x: str) -> str:
        return self.same("HardSwish", x)

    def silu(self, x: str) -> str:
        return self.same("Mul", x, self.same("Sigmoid", x))

    def pool(self, kind: str, x: str, kernel: int, stride: int, padding: int = 0) -> str:
        """MaxPool or AveragePool."""
        n, channels, height, width = self.shapes[x]
        size = ((extent + 2 * padding - kernel) // stride + 1 for extent in (height, width))
        return self.node(
            kind,
            [x],
            (n, channels, *size),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[padding] * 4,
        )

    def mean(self, x: str) -> str:
        """Global average pooling."""
        return self.node("GlobalAveragePool", [x], (*self.shapes[x][:2], 1, 1))

    def concat(self, *parts: str) -> str:
        """Along the channels."""
        n, _, *size = self.shapes[parts[0]]
        channels = sum(self.shapes[part][1] for part in parts)
        return self.node("Concat", parts, (n, channels, *size), axis=1)

    def channels(self, x: str, first: int, last: int) -> str:
        """A slice of the channels."""
        n, _, *size = self.shapes[x]
        bounds = (self.constant(np.array([bound], "int64")) for bound in (first, last, 1))
        return self.node("Slice", [x, *bounds], (n, last - first, *size))

    def shuffle(self, x: str, groups: int) -> str:
        """Channel shuffle."""
        n, channels, height, width = self.shapes[x]
        split = self.reshape(x, n, groups, channels // groups, height, width)
        return self.reshape(self.transpose(split, 0, 2, 1, 3, 4), n, channels, height, width)

    def upsample(self, x: str) -> str:
        """Nearest neighbors, twice the size."""
        n, channels, height, width = self.shapes[x]
        scales = self.constant(np.array([1, 1, 2, 2], "float32"))
        return self.node(
            "Resize",
            [x, "", scales],
            (n, channels, 2 * height, 2 * width),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def conv_transpose(self, x: str, channels: int, kernel: int, stride: int, pad: int) -> str:
        n, before, height, width = self.shapes[x]
        scale = (2 / before / max(kernel // stride, 1) ** 2) ** 0.5
        weight = self.normal(before, channels, kernel, kernel, scale=scale)
        size = ((extent - 1) * stride + kernel - 2 * pad for extent in (height, width))
        return self.node(
            "ConvTranspose",
            [x, weight, self.normal(channels, scale=0.1)],
            (n, channels, *size),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    def squeeze_excite(self, x: str, reduced: int, activation: str, gate: str) -> str:
        """Scale the channels by what two 1x1 convolutions make of their means."""
        channels = self.shapes[x][1]
        small = self.same(activation, self.conv(self.mean(x), reduced, 1))
        return self.same("Mul", x, self.same(gate, self.conv(small, channels, 1, gain=1.0)))

    def classify(self, x: str) -> str:
        """Mean, flatten, dense."""
        n, channels = self.shapes[x][:2]
        flat = self.node("Flatten", [self.mean(x)], (n, channels), axis=1)
        return self.dense(flat, CLASSES)

    def dense(self, x: str, features: int) -> str:
        """Gemm with a transposed weight, as PyTorch exports it."""
        n, before = self.shapes[x]
        weight = self.normal(features, before, scale=before**-0.5)
        return self.node("Gemm", [x, weight, self.normal(features)], (n, features), transB=1)

    # ------------------------------------------------------------------ sequences

    def linear(self, x: str, features: int) -> str:
        """MatMul and Add over the last axis."""
        *outer, before = self.shapes[x]
        weight = self.normal(before, features, scale=before**-0.5)
        product = self.node("MatMul", [x, weight], (*outer, features))
        return self.same("Add", product, self.normal(features, scale=0.1))

    def layer_norm(self, x: str) -> str:
        width = self.shapes[x][-1]
        scale = self.constant(self._rng.uniform(0.8, 1.2, width).astype("float32"))
        return self.same("LayerNormalization", x, scale, self.normal(width, scale=0.1), axis=-1)

    def gelu(self, x: str) -> str:
        """The exact form, out of Erf."""
        scaled = self.same("Div", x, self.constant(np.float32(2**0.5)))
        shifted = self.same("Add", self.same("Erf", scaled), self.constant(np.float32(1)))
        return self.same("Mul", self.same("Mul", x, shifted), self.constant(np.float32(0.5)))

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.constant(np.array(shape, "int64"))], shape)

    def transpose(self, x: str, *axes: int) -> str:
        shape = self.shapes[x]
        return self.node("Transpose", [x], [shape[axis] for axis in axes], perm=list(axes))

    def self_attention(self, x: str, heads: int) -> str:
        """One product makes queries, keys and values, as vision transformers are exported."""
        n, tokens, width = self.shapes[x]
        depth = width // heads
        joint = self.reshape(self.linear(x, 3 * width), n, tokens, 3, heads, depth)
        joint = self.transpose(joint, 2, 0, 3, 1, 4)
        q, k, v = (
            self.node(
                "Gather", [joint, self.constant(np.int64(which))], (n, heads, tokens, depth), axis=0
            )
            for which in range(3)
        )
        keys = self.transpose(k, 0, 1, 3, 2)
        scores = self.node("MatMul", [q, keys], (n, heads, tokens, tokens))
        scores = self.same("Mul", scores, self.constant(np.float32(depth**-0.5)))
        weights = self.same("Softmax", scores, axis=-1)
        mixed = self.node("MatMul", [weights, v], (n, heads, tokens, depth))
        return self.reshape(self.transpose(mixed, 0, 2, 1, 3), n, tokens, width)

    def finish(self, *outputs: str) -> onnx.ModelProto:
        """The checked model."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, self.shapes["input"])],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])
                for name in outputs
            ],
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def vgg(batch: int) -> onnx.ModelProto:
    """VGG-16: stacks of 3x3 convolutions, without its dense layers of 4096."""
    net = Network("vgg", (batch, 3, 224, 224))
    x = "input"
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = net.relu(net.conv(x, channels))
        x = net.pool("MaxPool", x, 2, 2)
    return net.finish(net.classify(x))


def inception(batch: int) -> onnx.ModelProto:
    """Inception v3's kinds of block: 1x1, 5x5, double 3x3, 1x7 and 7x1, pooled branches."""
    net = Network("inception", (batch, 3, 299, 299))

    def unit(x: str, channels: int, kernel: Any = 1, stride: int = 1, padding: Any = None) -> str:
        return net.relu(net.conv(x, channels, kernel, stride, padding=padding))

    x = unit("input", 32, 3, 2, 0)
    x = unit(unit(x, 32, 3, padding=0), 64, 3)
    x = net.pool("MaxPool", x, 3, 2)
    x = unit(unit(x, 80), 192, 3, padding=0)
    x = net.pool("MaxPool", x, 3, 2)
    for pooled in (32, 64, 64):
        wide = unit(unit(x, 48), 64, 5)
        double = unit(unit(unit(x, 64), 96, 3), 96, 3)
        mean = unit(net.pool("AveragePool", x, 3, 1, 1), pooled)
        x = net.concat(unit(x, 64), wide, double, mean)
    double = unit(unit(unit(x, 64), 96, 3), 96, 3, 2, 0)
    x = net.concat(unit(x, 384, 3, 2, 0), double, net.pool("MaxPool", x, 3, 2))
    for middle in (128, 160, 160, 192):
        row = unit(unit(unit(x, middle), middle, (1, 7)), 192, (7, 1))
        both = unit(unit(unit(x, middle), middle, (7, 1)), middle, (1, 7))
        both = unit(unit(both, middle, (7, 1)), 192, (1, 7))
        mean = unit(net.pool("AveragePool", x, 3, 1, 1), 192)
        x = net.concat(unit(x, 192), row, both, mean)
    row = unit(unit(unit(x, 192), 192, (1, 7)), 192, (7, 1))
    x = net.concat(
        unit(unit(x, 192), 320, 3, 2, 0), unit(row, 192, 3, 2, 0), net.pool("MaxPool", x, 3, 2)
    )
    for _ in range(2):
        split = unit(x, 384)
        split = net.concat(unit(split, 384, (1, 3)), unit(split, 384, (3, 1)))
        double = unit(unit(x, 448), 384, 3)
        double = net.concat(unit(double, 384, (1, 3)), unit(double, 384, (3, 1)))
        mean = unit(net.pool("AveragePool", x, 3, 1, 1), 192)
        x = net.concat(unit(x, 320), split, double, mean)
    return net.finish(net.classify(x))


def densenet(batch: int) -> onnx.ModelProto:
    """DenseNet-121: normalized and activated before each convolution, concatenated after it."""
    net = Network("densenet", (batch, 3, 224, 224))
    x = net.relu(net.norm(net.conv("input", 64, 7, 2, bias=False)))
    x = net.pool("MaxPool", x, 3, 2, 1)
    for index, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            y = net.conv(net.relu(net.norm(x)), 128, 1, bias=False, gain=1.0)
            y = net.conv(net.relu(net.norm(y)), 32, 3, bias=False, gain=1.0)
            x = net.concat(x, y)
        if index < 3:
            x = net.conv(net.relu(net.norm(x)), net.shapes[x][1] // 2, 1, bias=False)
            x = net.pool("AveragePool", x, 2, 2)
    return net.finish(net.classify(net.relu(net.norm(x))))


def mobilenet_v1(batch: int) -> onnx.ModelProto:
    """Depthwise 3x3 and 1x1 in turn."""
    net = Network("mobilenet_v1", (batch, 3, 224, 224))
    x = net.relu6(net.conv("input", 32, 3, 2))
    for channels, stride in (
        *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
        *((512, 1),) * 5,
        *((1024, 2), (1024, 1)),
    ):
        before = net.shapes[x][1]
        x = net.relu6(net.conv(x, before, 3, stride, groups=before))
        x = net.relu6(net.conv(x, channels, 1))
    return net.finish(net.classify(x))


def mobilenet_v3(batch: int) -> onnx.ModelProto:
    """MobileNet v3 large: 3x3 and 5x5 depthwise, squeeze-and-excite, hard-swish."""
    net = Network("mobilenet_v3", (batch, 3, 224, 224))
    x = net.hard_swish(net.conv("input", 16, 3, 2))
    for kernel, wide, channels, excite, swish, stride in (
        (3, 16, 16, False, False, 1),
        (3, 64, 24, False, False, 2),
        (3, 72, 24, False, False, 1),
        (5, 72, 40, True, False, 2),
        (5, 120, 40, True, False, 1),
        (5, 120, 40, True, False, 1),
        (3, 240, 80, False, True, 2),
        (3, 200, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 184, 80, False, True, 1),
        (3, 480, 112, True, True, 1),
        (3, 672, 112, True, True, 1),
        (5, 672, 160, True, True, 2),
        (5, 960, 160, True, True, 1),
        (5, 960, 160, True, True, 1),
    ):
        act = net.hard_swish if swish else net.relu
        before = net.shapes[x][1]
        y = act(net.conv(x, wide, 1)) if wide != before else x
        y = act(net.conv(y, wide, kernel, stride, groups=wide))
        if excite:
            y = net.squeeze_excite(y, (wide // 4 + 7) // 8 * 8, "Relu", "HardSigmoid")
        y = net.conv(y, channels, 1, gain=1.0)
        x = net.same("Add", x, y) if stride == 1 and before == channels else y
    x = net.hard_swish(net.conv(x, 960, 1))
    flat = net.node("Flatten", [net.mean(x)], (batch, 960), axis=1)
    return net.finish(net.dense(net.hard_swish(net.dense(flat, 1280)), CLASSES))


def efficientnet(batch: int) -> onnx.ModelProto:
    """EfficientNet-B0: inverted bottlenecks with SiLU and squeeze-and-excite."""
    net = Network("efficientnet", (batch, 3, 224, 224))
    x = net.silu(net.conv("input", 32, 3, 2))
    for expand, channels, count, first, kernel in (
        *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
        *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
    ):
        for index in range(count):
            stride, before = first if index == 0 else 1, net.shapes[x][1]
            wide = before * expand
            y = net.silu(net.conv(x, wide, 1)) if expand > 1 else x
            y = net.silu(net.conv(y, wide, kernel, stride, groups=wide))
            small = net.silu(net.conv(net.mean(y), max(before // 4, 1), 1))
            y = net.same("Mul", y, net.same("Sigmoid", net.conv(small, wide, 1, gain=1.0)))
            y = net.conv(y, channels, 1, gain=1.0)
            x = net.same("Add", x, y) if stride == 1 and before == channels else y
    return net.finish(net.classify(net.silu(net.conv(x, 1280, 1))))


def shufflenet(batch: int) -> onnx.ModelProto:
    """ShuffleNet v2: split, depthwise, concatenation and channel shuffle."""
    net = Network("shufflenet", (batch, 3, 224, 224))
    x = net.pool("MaxPool", net.relu(net.conv("input", 24, 3, 2)), 3, 2, 1)

    def right(x: str, channels: int, stride: int) -> str:
        y = net.relu(net.conv(x, channels, 1))
        return net.relu(net.conv(net.conv(y, channels, 3, stride, groups=channels), channels, 1))

    for channels, count in ((58, 4), (116, 8), (232, 4)):
        before = net.shapes[x][1]
        left = net.relu(net.conv(net.conv(x, before, 3, 2, groups=before), channels, 1))
        x = net.shuffle(net.concat(left, right(x, channels, 2)), 2)
        for _ in range(count - 1):
            kept = net.channels(x, 0, channels)
            changed = right(net.channels(x, channels, 2 * channels), channels, 1)
            x = net.shuffle(net.concat(kept, changed), 2)
    return net.finish(net.classify(net.relu(net.conv(x, 1024, 1))))


def resnext(batch: int) -> onnx.ModelProto:
    """ResNeXt-50 32x4d: 3x3 convolutions in 32 groups."""
    net = Network("resnext", (batch, 3, 224, 224))
    x = net.pool("MaxPool", net.relu(net.conv("input", 64, 7, 2)), 3, 2, 1)
    for width, count, first in ((128, 3, 1), (256, 4, 2), (512, 6, 2), (1024, 3, 2)):
        for index in range(count):
            stride = first if index == 0 else 1
            y = net.relu(net.conv(x, width, 1))
            y = net.relu(net.conv(y, width, 3, stride, groups=32))
            y = net.conv(y, 2 * width, 1, gain=0.5)
            x = net.conv(x, 2 * width, 1, stride, gain=1.0) if index == 0 else x
            x = net.relu(net.same("Add", x, y))
    return net.finish(net.classify(x))


def unet(batch: int) -> onnx.ModelProto:
    """U-Net: transposed convolutions of 2x2 with stride 2, and skip connections."""
    net = Network("unet", (batch, 3, 256, 256))

    def twice(x: str, channels: int) -> str:
        return net.relu(net.conv(net.relu(net.conv(x, channels)), channels))

    x, skips = "input", []
    for channels in (32, 64, 128, 256):
        x = twice(x, channels)
        skips.append(x)
        x = net.pool("MaxPool", x, 2, 2)
    x = twice(x, 512)
    for skip in reversed(skips):
        channels = net.shapes[skip][1]
        x = twice(net.concat(net.conv_transpose(x, channels, 2, 2, 0), skip), channels)
    return net.finish(net.conv(x, 2, 1))


def yolo(batch: int) -> onnx.ModelProto:
    """A one-stage detector: SiLU, split and concatenated bottlenecks, resized pyramids."""
    net = Network("yolo", (batch, 3, 320, 320))

    def unit(x: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
        return net.silu(net.conv(x, channels, kernel, stride))

    def stage(x: str, channels: int, count: int, add: bool) -> str:
        half = channels // 2
        x = unit(x, channels)
        parts = [net.channels(x, 0, half), net.channels(x, half, channels)]
        for _ in range(count):
            y = unit(unit(parts[-1], half, 3), half, 3)
            parts.append(net.same("Add", parts[-1], y) if add else y)
        return unit(net.concat(*parts), channels)

    x, levels = unit(unit("input", 16, 3, 2), 32, 3, 2), []
    for channels, count in ((32, 1), (64, 2), (128, 2), (256, 1)):
        if channels > 32:
            x = unit(x, channels, 3, 2)
        x = stage(x, channels, count, add=True)
        levels.append(x)
    small = unit(x, 128)
    pooled = [small]
    for _ in range(3):
        pooled.append(net.pool("MaxPool", pooled[-1], 5, 1, 2))
    x = unit(net.concat(*pooled), 256)
    middle = stage(net.concat(net.upsample(x), levels[2]), 128, 1, add=False)
    large = stage(net.concat(net.upsample(middle), levels[1]), 64, 1, add=False)
    heads = [net.conv(unit(unit(level, 64, 3), 64, 3), 144, 1) for level in (large, middle, x)]
    return net.finish(*heads)


def vit(batch: int) -> onnx.ModelProto:
    """ViT-small: patches of 16x16, twelve layers of width 384 with six heads, 197 tokens."""
    width, heads, layers = 384, 6, 12
    net = Network("vit", (batch, 3, 224, 224))
    patches = net.conv("input", width, 16, 16, padding=0)
    x = net.transpose(net.reshape(patches, batch, width, 196), 0, 2, 1)
    token = net.constant(np.zeros((batch, 1, width), "float32"))
    x = net.node("Concat", [token, x], (batch, 197, width), axis=1)
    x = net.same("Add", x, net.normal(1, 197, width))
    for _ in range(layers):
        attended = net.self_attention(net.layer_norm(x), heads)
        x = net.same("Add", x, net.linear(attended, width))
        hidden = net.gelu(net.linear(net.layer_norm(x), 4 * width))
        x = net.same("Add", x, net.linear(hidden, width))
    x = net.node("Gather", [net.layer_norm(x), net.constant(np.int64(0))], (batch, width), axis=1)
    return net.finish(net.dense(x, CLASSES))


def mlp(batch: int) -> onnx.ModelProto:
    """Dense layers alone: bound by the memory that their weights fill at batch 1."""
    net = Network("mlp", (batch, 1024))
    x = "input"
    for features in (4096, 4096, 1024):
        x = net.relu(net.dense(x, features))
    return net.finish(net.dense(x, CLASSES))


MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {
    make.__name__: make
    for make in (
        *(vgg, inception, densenet, mobilenet_v1, mobilenet_v3, efficientnet, shufflenet),
        *(resnext, unet, yolo, vit, mlp),
    )
}


def bundled(name: str, batch: int) -> onnx.ModelProto:
    """A bundled model for another batch."""
    from compiler.models.fill_weights import hydrate
    from scripts.models.symbolic_extents import with_symbols

    model = with_symbols(hydrate(name))
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = {"batch": batch, "seq": TOKENS}[dim.dim_param]
    return model


def main() -> None:
    """Read the command line and write the files."""
    from compiler.models.fill_weights import names as bundled_names

    known = [*MODELS, *bundled_names()]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where NAME.onnx or NAME_bBATCH.onnx is written")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(known)}")
    parser.add_argument("--batch", type=int, default=1)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"there is no network {unknown[0]!r}; known: {', '.join(known)}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or MODELS:
        suffix = f"_b{arguments.batch}" if arguments.batch != 1 else ""
        path = arguments.folder / f"{name}{suffix}.onnx"
        made = MODELS[name](arguments.batch) if name in MODELS else bundled(name, arguments.batch)
        onnx.save(made, path)
        print(path)


if __name__ == "__main__":
    main()
