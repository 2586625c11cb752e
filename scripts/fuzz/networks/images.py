"""Stages of networks over images (batch, channels, height, width)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .net import Network, Tensor


def image(net: Network) -> Tensor:
    """An image of any batch and size."""
    channels = net.one_of(1, 3, 4)
    low, high = net.one_of((8, 20), (16, 40), (24, 33))
    dims = (
        net.axis("batch", 1, 3),
        channels,
        net.axis("height", low, high),
        net.axis("height" if net.chance(0.15) else "width", low, high),
    )
    return Tensor(net.input(dims), 4, channels)


def conv(
    net: Network,
    x: str,
    given: int,
    made: int,
    kernel: int = 3,
    stride: int = 1,
    pad: int | None = None,
    group: int = 1,
) -> str:
    """A convolution, with a bias or BatchNormalization or neither, and an activation or none."""
    pad = kernel // 2 if pad is None else pad
    weight = net.weight(made, given // group, kernel, kernel)
    operands = [x, weight] + ([net.weight(made)] if net.chance(0.6) else [])
    given_pads: dict[str, Any] = {"pads": [pad] * 4}
    if net.chance(0.12):
        given_pads = {"auto_pad": net.one_of("SAME_UPPER", "SAME_LOWER", "VALID")}
    elif net.chance(0.15):
        given_pads = {"pads": [net.integer(0, pad), net.integer(0, pad), pad, pad]}
    dilation = 2 if net.chance(0.1) and "pads" in given_pads and stride == 1 else 1
    y = net.op(
        "Conv",
        *operands,
        kernel_shape=[kernel] * 2,
        strides=[stride] * 2,
        group=group,
        dilations=[dilation] * 2,
        **given_pads,
    )
    return net.activation(normalize(net, y, made)) if net.chance(0.8) else y


def normalize(net: Network, x: str, channels: int) -> str:
    """A normalization of channels, or none."""
    kind = net.one_of("", "", "batch", "instance", "group", "layer", "LRN")
    if kind == "batch":
        positive = net.const(np.abs(net.rng.standard_normal(channels)).astype("float32") + 0.5)
        return net.op(
            "BatchNormalization",
            x,
            net.weight(channels),
            net.weight(channels),
            net.weight(channels),
            positive,
        )
    if kind == "instance":
        return net.op("InstanceNormalization", x, net.weight(channels), net.weight(channels))
    if kind == "LRN":
        return net.op("LRN", x, size=3)
    if kind == "layer":  # ConvNeXt
        return net.transpose(net.layer_norm(net.transpose(x, 0, 2, 3, 1), channels), 0, 3, 1, 2)
    if kind == "group" and channels % 2 == 0:
        shape = net.op("Shape", x)
        flat = net.reshape(x, 0, 2, -1)
        ones, zeros = np.ones(2, "float32"), np.zeros(2, "float32")
        flat = net.op("InstanceNormalization", flat, net.const(ones), net.const(zeros))
        y = net.op("Reshape", flat, shape)
        return net.op("Mul", y, net.weight(channels, 1, 1))
    return x


def stem(net: Network, x: Tensor) -> Tensor:
    """A convolution with any stride and padding, and often a pool."""
    made = net.one_of(4, 6, 8)
    kernel = net.one_of(3, 3, 5, 7)
    y = conv(
        net,
        x.name,
        x.channels,
        made,
        kernel,
        net.one_of(1, 2, 2, 3, 4),
        net.one_of(0, 1, kernel // 2),
    )
    return Tensor(pool(net, y) if net.chance(0.6) else y, 4, made)


def pool(net: Network, x: str) -> str:
    """A pool of any size, stride, padding and rounding."""
    kernel = net.one_of(2, 2, 3)
    kind = net.one_of("MaxPool", "MaxPool", "AveragePool")
    pad = net.integer(0, kernel // 2)
    attributes: dict[str, Any] = {"pads": [pad] * 4}
    if net.chance(0.1):
        attributes = {"auto_pad": net.one_of("SAME_UPPER", "SAME_LOWER")}
    elif net.chance(0.3):
        attributes["ceil_mode"] = 1
    if kind == "AveragePool" and net.chance(0.3):
        attributes["count_include_pad"] = 1
    return net.op(
        kind, x, kernel_shape=[kernel] * 2, strides=[net.one_of(1, 2, 2, 3)] * 2, **attributes
    )


def residual(net: Network, x: Tensor) -> Tensor:
    """A residual block: plain, bottleneck, inverted with squeeze and excitation, or dense."""
    channels, stride = x.channels, net.one_of(1, 1, 2)
    made = net.one_of(channels, 8)
    if net.chance(0.25):  # DenseNet
        grown = conv(net, x.name, channels, 4)
        return Tensor(net.op("Concat", x.name, grown, axis=1), 4, channels + 4)
    wide = 2 * channels
    y = conv(net, x.name, channels, wide, 1)
    y = conv(net, y, wide, wide, 3, stride, 1, group=net.one_of(1, wide))
    if net.chance(0.4):
        y = net.op("Mul", y, squeezed(net, y, wide))
    y = conv(net, y, wide, made, 1)
    if made == channels and stride == 1:
        return Tensor(net.op("Add", x.name, y), 4, made)
    if net.chance(0.7):
        short = net.op("Conv", x.name, net.weight(made, channels, 1, 1), strides=[stride] * 2)
        return Tensor(net.activation(net.op("Add", short, y)), 4, made)
    return Tensor(y, 4, made)


def squeezed(net: Network, x: str, channels: int) -> str:
    """Gates of channels."""
    form = net.integer(0, 2)
    if form == 0:
        y = net.op("GlobalAveragePool", x)
    else:
        y = net.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    if form == 2:
        y = net.reshape(y, 0, -1)
        y = net.dense(net.activation(net.dense(y, channels, 4)), 4, channels)
        return net.reshape(net.op("Sigmoid", y), net.dim(x, 0), channels, 1, 1)
    y = net.op("Relu", net.op("Conv", y, net.weight(4, channels, 1, 1)))
    return net.op("HardSigmoid", net.op("Conv", y, net.weight(channels, 4, 1, 1)))


def pyramid(net: Network, x: Tensor) -> Tensor:
    """Two or three levels down and up again with skips: U-Net or FPN."""
    levels = net.integer(1, 2)
    channels = net.one_of(4, 8)
    y = conv(net, x.name, x.channels, channels)
    skips = []
    for _ in range(levels):
        skips.append(y)
        if net.chance():
            y = net.op(
                "MaxPool", y, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=net.one_of(0, 0, 1)
            )
        else:
            y = conv(net, y, channels, channels, 3, 2)
        y = conv(net, y, channels, channels)
    for skip in reversed(skips):
        y = enlarged(net, y, skip, channels)
        if net.chance(0.6):
            y = conv(net, net.op("Concat", *(skip, y), axis=1), 2 * channels, channels)
        else:
            y = conv(net, net.op("Add", skip, y), channels, channels)
    return Tensor(y, 4, channels)


def enlarged(net: Network, x: str, like: str, channels: int) -> str:
    """An image enlarged to the size of another: by sizes, or twice and then padded or cropped."""
    form = net.integer(0, 4)
    if form <= 1:
        sizes = net.op(
            "Concat",
            net.op("Slice", net.op("Shape", x), net.const([0]), net.const([2])),
            net.dim(like, 2),
            net.dim(like, 3),
            axis=0,
        )
        mode, coordinates = net.one_of(
            ("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")
        )
        return net.op(
            "Resize",
            x,
            "",
            "",
            sizes,
            mode=mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode="floor" if mode == "nearest" else None,
        )
    if form == 2:
        y = net.op("ConvTranspose", x, net.weight(channels, channels, 2, 2), strides=[2, 2])
    elif form == 3:
        y = net.op(
            "Resize",
            x,
            "",
            net.const(np.array([1, 1, 2, 2], "float32")),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    else:
        y = shuffled(net, conv(net, x, channels, 4 * channels), channels, 2)
    if net.chance():  # crop the larger to the smaller, as with odd sizes
        y = net.slice(net.slice(y, 2, 0, net.dim(like, 2)), 3, 0, net.dim(like, 3))
    missing = [net.op("Sub", net.dim(like, axis), net.dim(y, axis)) for axis in (2, 3)]
    two = net.const([2])
    before = (
        [net.op("Div", each, two) for each in missing] if net.chance() else [net.const([0])] * 2
    )
    after = [net.op("Sub", whole, part) for whole, part in zip(missing, before)]
    zeros = net.const([0, 0])
    return net.op("Pad", y, net.op("Concat", zeros, *before, zeros, *after, axis=0))


def shuffled(net: Network, x: str, channels: int, scale: int) -> str:
    """Blocks of channels as pixels, by DepthToSpace or by reshapes."""
    if net.chance():
        return net.op("DepthToSpace", x, blocksize=scale, mode=net.one_of("CRD", "DCR"))
    batch, height, width = (net.dim(x, axis) for axis in (0, 2, 3))
    y = net.reshape(x, batch, channels, scale, scale, height, width)
    y = net.transpose(y, 0, 1, 4, 2, 5, 3)
    factor = net.const([scale])
    return net.reshape(
        y, batch, channels, net.op("Mul", height, factor), net.op("Mul", width, factor)
    )


def upsampler(net: Network, x: Tensor) -> Tensor:
    """A generator's layers: transposed convolutions, resizes by a scale, shuffled pixels."""
    y, channels = x.name, x.channels
    for _ in range(net.integer(1, 2)):
        made = net.one_of(4, 6)
        form = net.integer(0, 3)
        if form == 0:
            kernel, stride = net.one_of((2, 2), (3, 2), (4, 2), (3, 3), (3, 1), (5, 2))
            pad = net.integer(0, (kernel - 1) // 2)
            extra = net.integer(0, 1) if stride > 1 else 0
            y = net.op(
                "ConvTranspose",
                y,
                net.weight(channels, made, kernel, kernel),
                *([net.weight(made)] if net.chance() else []),
                strides=[stride] * 2,
                pads=[pad] * 4,
                output_padding=[extra] * 2,
            )
        elif form == 1:
            factor = net.one_of(2.0, 2.0, 1.5, 0.5, 3.0)
            mode = net.one_of("nearest", "linear", "cubic")
            y = net.op(
                "Resize", y, "", net.const(np.array([1, 1, factor, factor], "float32")), mode=mode
            )
            y = conv(net, y, channels, made)
        elif form == 2:
            y = shuffled(net, conv(net, y, channels, 4 * made), made, 2)
        else:
            y = conv(
                net,
                net.op(
                    "Pad",
                    y,
                    net.const([0, 0, 1, 1, 0, 0, 1, 1]),
                    mode=net.one_of("reflect", "edge", "constant"),
                ),
                channels,
                made,
                3,
                1,
                0,
            )
        y, channels = net.activation(normalize(net, y, made)), made
    return Tensor(y, 4, channels)


def window_attention(net: Network, x: Tensor) -> Tensor:
    """Attention in windows, mostly padded to a multiple of their size, and at times shifted."""
    size, channels = net.one_of(2, 4, 7), x.channels
    y = net.transpose(x.name, 0, 2, 3, 1)
    batch, height, width = (net.dim(y, axis) for axis in range(3))
    shift = net.chance(0.4)
    if net.chance(0.8):
        window = net.const([size])
        pads = []
        for extent in (height, width):
            rest = net.op("Mod", extent, window)
            if net.chance():
                pads.append(net.op("Mod", net.op("Sub", window, rest), window))
            else:
                up = net.op("Div", net.op("Add", extent, net.const([size - 1])), window)
                pads.append(net.op("Sub", net.op("Mul", up, window), extent))
        y = net.op("Pad", y, net.shape(0, 0, 0, 0, 0, *pads, 0))
    if shift:
        for axis in (1, 2):
            y = net.op(
                "Concat",
                net.slice(y, axis, size // 2, 1 << 62),
                net.slice(y, axis, 0, size // 2),
                axis=axis,
            )
    inner_height, inner_width = net.dim(y, 1), net.dim(y, 2)
    rows, columns = (net.op("Div", each, net.const([size])) for each in (inner_height, inner_width))
    y = net.transpose(net.reshape(y, batch, rows, size, columns, size, channels), 0, 1, 3, 2, 4, 5)
    y = net.reshape(y, -1, size * size, channels)
    normal = net.layer_norm(y, channels)
    heads = net.one_of(1, 2) if channels % 2 == 0 else 1
    q, k, v = (
        net.heads(net.dense(normal, channels, channels), heads, channels // heads) for _ in range(3)
    )
    bias = net.weight(1, heads, size * size, size * size)
    y = net.op("Add", y, net.joined(net.attention(q, k, v, channels // heads, bias), channels))
    y = net.transpose(net.reshape(y, batch, rows, columns, size, size, channels), 0, 1, 3, 2, 4, 5)
    y = net.reshape(y, batch, inner_height, inner_width, channels)
    if shift:
        for axis in (1, 2):
            y = net.op(
                "Concat",
                net.slice(y, axis, -(size // 2), 1 << 62),
                net.slice(y, axis, 0, -(size // 2)),
                axis=axis,
            )
    y = net.slice(net.slice(y, 1, 0, height), 2, 0, width)
    return Tensor(net.transpose(y, 0, 3, 1, 2), 4, channels)


def sampled(net: Network, x: Tensor) -> Tensor:
    """An image sampled at a grid of its coordinates that a convolution moves (optical flow)."""
    batch, height, width = (net.dim(x.name, axis) for axis in (0, 2, 3))
    flow = conv(net, x.name, x.channels, 2, 3)
    one = net.const(np.float32(1))
    parts = []
    for extent, axis in ((width, 0), (height, 1)):
        line = net.op("Range", net.const(0), net.scalar(extent), net.const(1))
        line = net.reshape(net.op("Cast", line, to=1), *((1, 1, -1) if axis == 0 else (1, -1, 1)))
        moved = net.op("Add", line, net.op("Gather", flow, net.const(axis), axis=1))
        span = net.op("Max", net.op("Sub", net.op("Cast", net.scalar(extent), to=1), one), one)
        scaled = net.op(
            "Sub", net.op("Div", net.op("Mul", moved, net.const(np.float32(2))), span), one
        )
        parts.append(net.op("Unsqueeze", scaled, net.const([3])))
    grid = net.op("Concat", *parts, axis=3)
    if net.chance(0.3):
        grid = net.reshape(grid, batch, height, width, 2)
    y = net.op(
        "GridSample", x.name, grid, align_corners=1, padding_mode=net.one_of("zeros", "border")
    )
    return Tensor(y, 4, x.channels)


def multiscale(net: Network, x: Tensor) -> Tensor:
    """Pools to several sizes, enlarged and joined (PSPNet, ASPP)."""
    parts = [x.name]
    y = net.op("Conv", net.op("GlobalAveragePool", x.name), net.weight(4, x.channels, 1, 1))
    shape = net.shape(net.dim(x.name, 0), 4, net.dim(x.name, 2), net.dim(x.name, 3))
    parts.append(net.op("Expand", y, shape))
    small = net.op("AveragePool", x.name, kernel_shape=[2, 2], strides=[2, 2])
    sizes = net.op(
        "Concat", net.op("Shape", x.name, end=2), net.op("Shape", x.name, start=2), axis=0
    )
    parts.append(net.op("Resize", small, "", "", sizes, mode="linear"))
    width = 2 * x.channels + 4
    return Tensor(conv(net, net.op("Concat", *parts, axis=1), width, 8, 1), 4, 8)


def patches(net: Network, x: Tensor) -> Tensor:
    """Patches of an image as a sequence (ViT), with positions and often a class token."""
    size, made = net.one_of(2, 4, 4, 7, 8), net.one_of(8, 12)
    y = net.op(
        "Conv",
        x.name,
        net.weight(made, x.channels, size, size),
        net.weight(made),
        strides=[size] * 2,
    )
    if net.chance(0.3):  # positions resized to the number of patches
        table = net.weight(1, made, 4, 4)
        sizes = net.shape(1, made, net.dim(y, 2), net.dim(y, 3))
        y = net.op(
            "Add", y, net.op("Resize", table, "", "", sizes, mode=net.one_of("linear", "cubic"))
        )
    form = net.integer(0, 2)
    if form == 0:
        y = net.reshape(y, 0, made, -1)
    elif form == 1:
        y = net.reshape(y, net.dim(y, 0), made, net.op("Mul", net.dim(y, 2), net.dim(y, 3)))
    else:
        y = net.reshape(y, net.dim(y, 0), net.dim(y, 1), -1)
    y = net.transpose(y, 0, 2, 1)
    if net.chance(0.7):
        token = net.op("Expand", net.weight(1, 1, made), net.shape(net.dim(x.name, 0), 1, made))
        y = net.op("Concat", token, y, axis=1)
    if net.chance(0.4):
        y = net.op("Add", y, net.slice(net.weight(1, 160, made), 1, 0, net.dim(y, 1)))
    return Tensor(y, 3, made)


def columns(net: Network, x: Tensor) -> Tensor:
    """Columns of an image as a sequence: text recognition (CRNN)."""
    y = x.name
    if net.chance(0.5):
        y = net.op("ReduceMean", y, axes=[2], keepdims=0)
        return Tensor(net.transpose(y, 0, 2, 1), 3, x.channels)
    y = net.transpose(y, 0, 3, 1, 2)
    y = net.op("ReduceMax", net.reshape(y, 0, 0, x.channels, -1), axes=[3], keepdims=0)
    return Tensor(y, 3, x.channels)


def pixels(net: Network, x: Tensor) -> Tensor:
    """All pixels as a sequence (DETR)."""
    y = pool(net, x.name)
    flat = net.reshape(y, 0 if net.chance() else net.dim(y, 0), x.channels, -1)
    return Tensor(net.transpose(flat, 0, 2, 1), 3, x.channels)


def boxes(net: Network, x: Tensor) -> list[str]:
    """Boxes around each pixel, their scores, and the best of them."""
    batch, height, width = (net.dim(x.name, axis) for axis in (0, 2, 3))
    head = net.op("Conv", x.name, net.weight(5, x.channels, 1, 1))
    flat = net.transpose(net.reshape(head, batch, 5, -1), 0, 2, 1)
    zero, one = net.const(0), net.const(1)
    lines = [net.op("Range", zero, net.scalar(each), one) for each in (height, width)]
    grid = net.op("Concat", height, width, axis=0)
    ys = net.op("Expand", net.op("Unsqueeze", lines[0], net.const([1])), grid)
    xs = net.op("Expand", net.op("Unsqueeze", lines[1], net.const([0])), grid)
    parts = [net.op("Unsqueeze", each, net.const([2])) for each in (xs, ys)]
    centers = net.reshape(net.op("Cast", net.op("Concat", *parts, axis=2), to=1), 1, -1, 2)
    centers = net.op("Add", centers, net.op("Sigmoid", net.slice(flat, 2, 0, 2)))
    half = net.op(
        "Exp",
        net.op(
            "Clip", net.slice(flat, 2, 2, 4), net.const(np.float32(-1)), net.const(np.float32(1))
        ),
    )
    found = net.op("Concat", net.op("Sub", centers, half), net.op("Add", centers, half), axis=2)
    scores = net.op("Sigmoid", net.slice(flat, 2, 4, 5))
    form = net.integer(0, 2)
    if form == 0:
        return [found, scores]
    if form == 1:
        best = net.op(
            "TopK",
            net.op("Squeeze", scores, net.const([2])),
            _at_most(net, scores, 1, 5),
            outputs=2,
        )
        index = net.op("Expand", net.op("Unsqueeze", best[1], net.const([2])), net.shape(1, 1, 4))
        return [best[0], net.op("GatherElements", found, index, axis=1)]
    chosen = net.op(
        "NonMaxSuppression",
        found,
        net.transpose(scores, 0, 2, 1),
        net.const([4]),
        net.const(np.array([0.5], "float32")),
        net.const(np.array([0.4], "float32")),
    )
    return [
        chosen,
        net.op(
            "GatherND",
            found,
            net.op("Concat", net.slice(chosen, 1, 0, 1), net.slice(chosen, 1, 2, 3), axis=1),
        ),
    ]


def _at_most(net: Network, x: str, axis: int, count: int) -> str:
    """The smaller of a count and an extent, or the count alone."""
    if net.chance(0.3):
        return net.const([count])
    return net.op("Min", net.dim(x, axis), net.const([count]))
