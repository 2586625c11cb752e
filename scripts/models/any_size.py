"""Networks of images and sounds of any size, with random weights: ViT, ConvNeXt, VGG, wav2vec2.

Images are (batch, 3, height, width), sounds (batch, samples), float32. Extents that depend on the
input's are computed by Shape, Gather and Concat, as exporters write them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scripts.models.decoders import Graph


def vit(
    g: Graph, x: str, linear: Callable[..., str], block: Callable[..., str], width: int, layers: int
) -> str:
    """Patches of 16 x 16, position embeddings of 14 x 14 resized to the patches, a class token."""
    x = conv(g, x, 3, width, kernel=16, stride=16)
    rows = g("Slice", g("Shape", x), g.constant([2]), g.constant([4]))
    sizes = g("Concat", g.constant([1, width]), rows, axis=0)
    positions = g(
        "Resize",
        g.constant(g.random.normal(size=(1, width, 14, 14)) / 8, "float32"),
        "",
        "",
        sizes,
        mode="cubic",
        coordinate_transformation_mode="pytorch_half_pixel",
        cubic_coeff_a=-0.75,
    )
    tokens = g("Reshape", g("Add", x, positions), g.constant([0, 0, -1]))
    tokens = g("Transpose", tokens, perm=[0, 2, 1])
    batch = g("Slice", g("Shape", tokens), g.constant([0]), g.constant([1]))
    sizes = g("Concat", batch, g.constant([1, width]), axis=0)
    tokens = g("Concat", g("Expand", g.weight(1, 1, width), sizes), tokens, axis=1)
    for _ in range(layers):
        tokens = block(g, tokens)
    first = g("Gather", tokens, g.constant(0), axis=1)
    return linear(g, first, width, 1000)


def convnext(
    g: Graph,
    x: str,
    linear: Callable[..., str],
    normal: Callable[..., str],
    widths: tuple[int, ...] = (96, 192, 384, 768),
    depths: tuple[int, ...] = (3, 3, 9, 3),
) -> str:
    """Depthwise convolutions of 7 x 7 and two linear layers per block, channels last between."""

    def first(x: str) -> str:
        return str(g("Transpose", x, perm=[0, 3, 1, 2]))

    def last(x: str) -> str:
        return str(g("Transpose", x, perm=[0, 2, 3, 1]))

    before = 3
    for stage, (width, depth) in enumerate(zip(widths, depths)):
        if stage:
            x = first(normal(g, last(x), before))
        size = 2 if stage else 4
        x = conv(g, x, before, width, kernel=size, stride=size)
        if not stage:
            x = first(normal(g, last(x), width))
        for _ in range(depth):
            inner = normal(g, last(conv(g, x, width, width, 7, padding=3, groups=width)), width)
            inner = g("Gelu", linear(g, inner, width, 4 * width))
            inner = g("Mul", linear(g, inner, 4 * width, width), g.weight(width))
            x = g("Add", x, first(inner))
        before = width
    pooled = g("Flatten", g("GlobalAveragePool", x))
    return linear(g, normal(g, pooled, before), before, 1000)


def vgg(
    g: Graph,
    x: str,
    linear: Callable[..., str],
    stages: tuple[tuple[int, ...], ...] = ((64,), (128,), (256, 256), (512, 512), (512, 512)),
) -> str:
    """VGG-11: 3 x 3 convolutions, MaxPool of 2 x 2 after each stage, global average pooling."""
    before = 3
    for stage in stages:
        for width in stage:
            x = g("Relu", conv(g, x, before, width, 3, padding=1))
            before = width
        x = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return linear(g, g("Flatten", g("GlobalAveragePool", x)), before, 1000)


def wav2vec2(
    g: Graph,
    x: str,
    linear: Callable[..., str],
    normal: Callable[..., str],
    block: Callable[..., str],
    width: int,
    layers: int,
    channels: int = 512,
) -> str:
    """Seven strided convolutions, a grouped convolution of 128 samples as positions, layers."""
    x, before = g("Unsqueeze", x, g.constant([1])), 1
    for index, (kernel, stride) in enumerate([(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]):
        x = conv(g, x, before, channels, kernel, stride, dimensions=1)
        if not index:
            ones, zeros = (g.constant([value] * channels, "float32") for value in (1, 0))
            x = g("InstanceNormalization", x, ones, zeros)
        x, before = g("Gelu", x), channels
    x = g("Transpose", x, perm=[0, 2, 1])
    x = linear(g, normal(g, x, channels), channels, width)
    moved = g("Transpose", x, perm=[0, 2, 1])
    moved = conv(g, moved, width, width, 128, padding=64, groups=16, dimensions=1)
    bounds = [g.constant([value]) for value in (0, -1, 2)]
    moved = g("Gelu", g("Slice", moved, *bounds))
    x = normal(g, g("Add", x, g("Transpose", moved, perm=[0, 2, 1])), width)
    for _ in range(layers):
        x = block(g, x)
    return linear(g, normal(g, x, width), width, 32)


def conv(
    g: Graph,
    x: str,
    before: int,
    after: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    dimensions: int = 2,
) -> str:
    """A convolution with a bias, the same along all dimensions."""
    inner = before // groups * kernel**dimensions
    shape = (after, before // groups, *[kernel] * dimensions)
    weight = g.constant(g.random.normal(size=shape) * math.sqrt(2 / inner), "float32")
    return str(
        g(
            "Conv",
            x,
            weight,
            g.weight(after),
            kernel_shape=[kernel] * dimensions,
            strides=[stride] * dimensions,
            pads=[padding] * 2 * dimensions,
            group=groups,
        )
    )
