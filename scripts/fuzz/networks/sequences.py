"""Stages of networks over sequences (batch, length, channels) and signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .net import Network, Tensor


def tokens(net: Network) -> Tensor:
    """Embedded tokens with positions."""
    batch, length = net.axis("batch", 1, 3), net.axis("length", 2, 12)
    channels = net.one_of(8, 12)
    ids = net.input((batch, length), net.one_of("int64", "int32"), 20)
    y = net.op("Gather", net.weight(20, channels, scale=1.0), ids, axis=0)
    form = net.integer(0, 3)
    if form == 0:
        y = net.op("Add", y, net.slice(net.weight(64, channels), 0, 0, net.dim(ids, 1)))
    elif form == 1:
        positions = net.op("Range", net.const(0), net.scalar(net.dim(ids, 1)), net.const(1))
        y = net.op("Add", y, net.op("Gather", net.weight(64, channels), positions, axis=0))
    elif form == 2:
        positions = net.slice(net.const(np.arange(64)[None]), 1, 0, net.dim(ids, 1))
        y = net.op("Add", y, net.op("Gather", net.weight(64, channels), positions, axis=0))
    else:  # XLM-R: positions of what is no padding
        mask = net.op(
            "Cast", net.op("Not", net.op("Equal", net.op("Cast", ids, to=7), net.const(1))), to=6
        )
        counted = net.op("Mul", net.op("CumSum", mask, net.const(1)), mask)
        y = net.op(
            "Add",
            y,
            net.op("Gather", net.weight(64, channels), net.op("Cast", counted, to=7), axis=0),
        )
    return Tensor(y, 3, channels)


def features(net: Network) -> Tensor:
    """A sequence of feature vectors."""
    channels = net.one_of(4, 8, 10)
    dims = (net.axis("batch", 1, 3), net.axis("length", 2, 14), channels)
    return Tensor(net.input(dims), 3, channels)


def waveform(net: Network) -> Tensor:
    """A spectrum of a signal by a strided convolution, or a stack of strided convolutions."""
    dims = (net.axis("batch", 1, 3), net.axis("samples", 90, 260))
    y = net.op("Unsqueeze", net.input(dims), net.const([1]))
    if net.chance():
        frame, hop = net.one_of((16, 8), (20, 10), (32, 8))
        if net.chance(0.6):
            half = frame // 2
            y = net.op(
                "Pad",
                y,
                net.const([0, 0, half, 0, 0, half]),
                mode=net.one_of("reflect", "constant"),
            )
        bins = frame // 2 + 1
        y = net.op("Conv", y, net.weight(2 * bins, 1, frame), strides=[hop])
        real, imaginary = net.slice(y, 1, 0, bins), net.slice(y, 1, bins, 2 * bins)
        power = net.op("Add", net.op("Mul", real, real), net.op("Mul", imaginary, imaginary))
        if net.chance():
            power = net.op("Sqrt", power)
        mel = net.op(
            "MatMul",
            net.transpose(power, 0, 2, 1),
            net.const(np.abs(net.rng.standard_normal((bins, 8))).astype("float32")),
        )
        return Tensor(net.op("Log", net.op("Add", mel, net.const(np.float32(1e-2)))), 3, 8)
    channels = 1
    for kernel, stride in ((10, 5), (3, 2), (net.one_of(2, 3), 2))[: net.integer(2, 3)]:
        y = net.op("Conv", y, net.weight(6, channels, kernel), strides=[stride])
        channels = 6
        y = net.activation(
            net.op("InstanceNormalization", y, net.weight(6), net.weight(6))
            if net.chance(0.4)
            else y
        )
    return Tensor(net.transpose(y, 0, 2, 1), 3, channels)


def attention_block(net: Network, x: Tensor) -> Tensor:
    """A transformer's layer, with masks of many forms."""
    channels = x.channels
    heads = 2 if channels % 2 == 0 else 1
    width = channels // heads
    before = net.chance()
    y = net.layer_norm(x.name, channels) if before else x.name
    if net.chance(0.4):
        whole = net.dense(y, channels, 3 * channels)
        form = net.integer(0, 1)
        if form == 0:
            q, k, v = (
                net.heads(each, heads, width)
                for each in net.op("Split", whole, net.const([channels] * 3), axis=2, outputs=3)
            )
        else:
            split = net.transpose(
                net.reshape(whole, net.dim(y, 0), net.dim(y, 1), 3, heads, width), 2, 0, 3, 1, 4
            )
            q, k, v = (net.op("Gather", split, net.const(i), axis=0) for i in range(3))
    else:
        q, k, v = (net.heads(net.dense(y, channels, channels), heads, width) for _ in range(3))
    if width % 2 == 0 and net.chance(0.3):
        cosine, sine = rotary(net, net.dim(y, 1), width)
        q, k = (rotated(net, each, cosine, sine, width) for each in (q, k))
    mask = mask_of(net, y) if net.chance(0.6) else None
    y = net.joined(net.attention(q, k, v, width, mask), channels)
    y = net.op("Add", x.name, net.dense(y, channels, channels))
    if not before:
        y = net.layer_norm(y, channels)
    return feed_forward(net, Tensor(y, 3, channels))


def feed_forward(net: Network, x: Tensor) -> Tensor:
    """Two dense layers, or a gated pair of them."""
    y = net.layer_norm(x.name, x.channels)
    gate = net.dense(y, x.channels, 16)
    inner = net.activation(gate)
    if net.chance(0.4):
        inner = net.op("Mul", inner, net.dense(y, x.channels, 16))
    return Tensor(net.op("Add", x.name, net.dense(inner, 16, x.channels)), 3, x.channels)


def rotary(net: Network, length: str, width: int, past: str | None = None) -> tuple[str, str]:
    """Cosines and sines of rotary positions (length, width)."""
    end = length if past is None else net.op("Add", past, length)
    start = net.const(0) if past is None else net.scalar(past)
    positions = net.op("Cast", net.op("Range", start, net.scalar(end), net.const(1)), to=1)
    frequencies = net.const((1 / 100 ** (np.arange(width // 2) / width)).astype("float32"))
    if net.chance():
        angles = net.op("Einsum", positions, frequencies, equation="i,j->ij")
    else:
        angles = net.op("Mul", net.op("Unsqueeze", positions, net.const([1])), frequencies)
    angles = net.op("Concat", angles, angles, axis=-1)
    return net.op("Cos", angles), net.op("Sin", angles)


def rotated(net: Network, x: str, cosine: str, sine: str, width: int) -> str:
    """Rotary embedding of (batch, heads, length, width)."""
    half = width // 2
    left, right = net.slice(x, 3, 0, half), net.slice(x, 3, half, 1 << 62)
    turned = net.op("Concat", net.op("Neg", right), left, axis=3)
    return net.op("Add", net.op("Mul", x, cosine), net.op("Mul", turned, sine))


def mask_of(net: Network, x: str) -> str:
    """A mask of (batch, length, channels) that is added to scores."""
    batch, length = net.dim(x, 0), net.dim(x, 1)
    low = net.const(np.float32(-1e4))
    form = net.integer(0, 4)
    if form == 0:  # causal, by comparing positions
        line = net.op("Range", net.const(0), net.scalar(length), net.const(1))
        allowed = net.op(
            "Less",
            net.op("Unsqueeze", line, net.const([1])),
            net.op("Unsqueeze", line, net.const([0])),
        )
        return net.op("Where", allowed, low, net.const(np.float32(0)))
    if form == 1:  # causal, by Trilu of a filled square
        square = net.op(
            "ConstantOfShape", net.op("Concat", length, length, axis=0), value=one(np.float32(-1e4))
        )
        return net.op(
            "Unsqueeze", net.op("Trilu", square, net.const(1), upper=1), net.const([0, 1])
        )
    if form == 2:  # lengths of the batch elements
        ends = net.op(
            "ReduceSum",
            net.op("Cast", net.op("Greater", x, net.const(np.float32(0))), to=7),
            net.const([1, 2]),
            keepdims=0,
        )
        line = net.op("Range", net.const(0), net.scalar(length), net.const(1))
        allowed = net.op(
            "Less",
            net.op("Unsqueeze", line, net.const([0])),
            net.op("Unsqueeze", ends, net.const([1])),
        )
        allowed = net.op("Unsqueeze", allowed, net.const([1, 2]))
        return net.op("Where", allowed, net.const(np.float32(0)), low)
    if form == 3:  # a filled and expanded one
        shape = net.shape(batch, 1, length, length)
        ones = net.op("Expand", net.const(np.float32(1)), shape)
        return net.op("Mul", net.op("Sub", ones, net.const(np.float32(1))), low)
    distance = net.op("Range", net.const(0), net.scalar(length), net.const(1))  # ALiBi, T5
    apart = net.op(
        "Sub",
        net.op("Unsqueeze", distance, net.const([0])),
        net.op("Unsqueeze", distance, net.const([1])),
    )
    near = net.op("Min", net.op("Abs", apart), net.const(7))
    bias = net.op("Gather", net.weight(8, 1), near, axis=0)
    return net.op("Unsqueeze", net.transpose(bias, 2, 0, 1), net.const([0]))


def one(value: np.generic) -> object:
    """A tensor of one element, for ConstantOfShape."""
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array([value]))


def recurrent(net: Network, x: Tensor) -> Tensor:
    """LSTM, GRU or RNN in any direction."""
    kind = net.one_of("LSTM", "GRU", "RNN")
    direction = net.one_of("forward", "forward", "reverse", "bidirectional")
    ways, hidden = 2 if direction == "bidirectional" else 1, net.one_of(3, 4)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    y = net.transpose(x.name, 1, 0, 2)
    operands = [
        y,
        net.weight(ways, gates * hidden, x.channels),
        net.weight(ways, gates * hidden, hidden),
    ]
    operands.append(net.weight(ways, 2 * gates * hidden) if net.chance(0.7) else "")
    if net.chance(0.5):
        shape = net.shape(ways, net.dim(x.name, 0), hidden)
        if net.chance():
            state = net.op("ConstantOfShape", shape)
        else:
            state = net.op("Expand", net.weight(ways, 1, hidden), shape)
        operands += ["", state] + ([state] if kind == "LSTM" else [])
    attributes = {"linear_before_reset": net.one_of(0, 1)} if kind == "GRU" else {}
    every, last = net.op(
        kind, *operands, outputs=2, hidden_size=hidden, direction=direction, **attributes
    )
    made = ways * hidden
    if net.chance(0.3):
        net.outputs.append(last)
    every = net.transpose(every, 2, 0, 1, 3)
    form = net.integer(0, 2)
    if form == 0:
        return Tensor(net.reshape(every, 0, 0, made), 3, made)
    if form == 1:
        return Tensor(net.reshape(every, net.dim(every, 0), net.dim(every, 1), -1), 3, made)
    if ways == 1:
        return Tensor(net.op("Squeeze", every, net.const([2])), 3, made)
    return Tensor(net.reshape(every, 0, -1, made), 3, made)


def temporal(net: Network, x: Tensor) -> Tensor:
    """Dilated, gated or separable convolutions over time: WaveNet, TCN, Conformer."""
    y, channels = net.transpose(x.name, 0, 2, 1), x.channels
    form = net.integer(0, 3)
    if form == 0:  # causal and gated
        dilation = net.one_of(1, 2, 4)
        y = net.op("Pad", y, net.const([0, 0, 2 * dilation, 0, 0, 0]))
        y = net.op("Conv", y, net.weight(2 * channels, channels, 3), dilations=[dilation])
        left, right = net.op("Split", y, net.const([channels] * 2), axis=1, outputs=2)
        y = net.op("Mul", net.op("Tanh", left), net.op("Sigmoid", right))
        y = net.op("Add", y, net.transpose(x.name, 0, 2, 1))
    elif form == 1:  # depthwise
        kernel = net.one_of(3, 5)
        y = net.op(
            "Conv", y, net.weight(channels, 1, kernel), group=channels, pads=[kernel // 2] * 2
        )
        y = net.activation(
            net.op("InstanceNormalization", y, net.weight(channels), net.weight(channels))
        )
    elif form == 2:  # padded by too much and cropped
        y = net.op("Conv", y, net.weight(channels, channels, 3), pads=[2, 2])
        y = net.slice(y, 2, 0, -2)
    else:  # strided, pooled
        y = net.op("Conv", y, net.weight(channels, channels, 3), strides=[2], pads=[1, 1])
        y = net.op(
            net.one_of("MaxPool", "AveragePool"), y, kernel_shape=[2], strides=[net.one_of(1, 2)]
        )
    return Tensor(net.transpose(y, 0, 2, 1), 3, channels)


def unsampled(net: Network, x: Tensor) -> Tensor:
    """A sequence twice as long: a vocoder's ConvTranspose, repeats, or an Expand."""
    form = net.integer(0, 2)
    if form == 0:
        y = net.op(
            "ConvTranspose",
            net.transpose(x.name, 0, 2, 1),
            net.weight(x.channels, 6, 4),
            strides=[2],
            pads=[1, 1],
        )
        return Tensor(net.transpose(net.activation(y), 0, 2, 1), 3, 6)
    if form == 1:
        y = net.op("Tile", net.op("Unsqueeze", x.name, net.const([2])), net.const([1, 1, 2, 1]))
    else:
        shape = net.shape(net.dim(x.name, 0), net.dim(x.name, 1), 2, x.channels)
        y = net.op("Expand", net.op("Unsqueeze", x.name, net.const([2])), shape)
    doubled = net.op("Mul", net.dim(x.name, 1), net.const([2]))
    return Tensor(net.reshape(y, net.dim(x.name, 0), doubled, x.channels), 3, x.channels)


def relative_shift(net: Network, x: Tensor) -> Tensor:
    """Attention with relative positions by the shift of Transformer-XL."""
    channels = x.channels
    batch, length = net.dim(x.name, 0), net.dim(x.name, 1)
    scores = net.op("MatMul", net.dense(x.name, channels, channels), net.transpose(x.name, 0, 2, 1))
    padded = net.op(
        "Concat", net.op("ConstantOfShape", net.shape(batch, length, 1)), scores, axis=2
    )
    padded = net.reshape(padded, batch, net.op("Add", length, net.const([1])), length)
    shifted = net.reshape(net.slice(padded, 1, 1, 1 << 62), *(batch, length, length))
    weights = net.op("Softmax", net.op("Add", scores, shifted), axis=-1)
    return Tensor(net.op("MatMul", weights, x.name), 3, channels)


def chunks(net: Network, x: Tensor) -> Tensor:
    """A sequence padded to chunks, which are reduced each, and spread again."""
    size, channels = net.one_of(2, 4, 5), x.channels
    length = net.dim(x.name, 1)
    many = net.op("Div", net.op("Add", length, net.const([size - 1])), net.const([size]))
    missing = net.op("Sub", net.op("Mul", many, net.const([size])), length)
    y = net.op("Pad", x.name, net.shape(0, 0, 0, 0, missing, 0))
    y = net.reshape(y, net.dim(x.name, 0), many, size, channels)
    best = net.op(net.one_of("ReduceMax", "ReduceMean"), y, axes=[2], keepdims=1)
    y = net.reshape(net.op("Sub", y, best), net.dim(x.name, 0), -1, channels)
    return Tensor(net.slice(y, 1, 0, length), 3, channels)


def halves(net: Network, x: Tensor) -> Tensor:
    """Every other element subtracted from its neighbor, or the halves of a sequence swapped."""
    if net.chance():
        even, odd = net.slice(x.name, 1, 0, 1 << 62, 2), net.slice(x.name, 1, 1, 1 << 62, 2)
        even = net.slice(even, 1, 0, net.dim(odd, 1))
        return Tensor(net.op("Sub", even, odd), 3, x.channels)
    middle = net.op("Div", net.dim(x.name, 1), net.const([2]))
    y = net.op(
        "Concat", net.slice(x.name, 1, middle, 1 << 62), net.slice(x.name, 1, 0, middle), axis=1
    )
    return Tensor(net.op("Add", x.name, y), 3, x.channels)


def looped(net: Network, x: Tensor) -> Tensor:
    """Add a Scan or Loop over the steps of a sequence, with a random cell."""
    channels = x.channels
    batch_shape = net.shape(net.dim(x.name, 0), channels)
    start = net.op("ConstantOfShape", batch_shape)
    weight = net.weight(channels, channels)
    steps = net.transpose(x.name, 1, 0, 2)
    if net.chance():

        def cell() -> list[tuple[str, str, list[Any]]]:
            mixed = net.op("Add", net.op("MatMul", "state_in", weight), "step_in")
            new = net.op("Tanh", mixed)
            return [
                (new, "float32", [None, channels]),
                (net.op("Identity", new), "float32", [None, channels]),
            ]

        body = net.body(
            [("state_in", "float32", [None, channels]), ("step_in", "float32", [None, channels])],
            cell,
        )
        last, every = net.op("Scan", start, steps, outputs=2, body=body, num_scan_inputs=1)
    else:

        def turn() -> list[tuple[str, str, list[Any]]]:
            step = net.op("Gather", steps, "turn_number", axis=0)
            new = net.op("Sigmoid", net.op("Add", net.op("MatMul", "carried", weight), step))
            return [
                (net.op("Identity", "turn_go"), "bool", []),
                (new, "float32", [None, channels]),
                (net.op("Identity", new), "float32", [None, channels]),
            ]

        given = [
            ("turn_number", "int64", []),
            ("turn_go", "bool", []),
            ("carried", "float32", [None, channels]),
        ]
        body = net.body(given, turn)
        count = net.scalar(net.dim(x.name, 1))
        last, every = net.op("Loop", count, net.const(np.array(True)), start, outputs=2, body=body)
    if net.chance(0.3):
        net.outputs.append(last)
    return Tensor(net.transpose(every, 1, 0, 2), 3, channels)


def branched(net: Network, x: Tensor) -> Tensor:
    """An If on an extent: a long sequence is cut, a short one padded."""
    limit, channels = net.one_of(3, 5, 8), x.channels
    is_long = net.op("Greater", net.scalar(net.dim(x.name, 1)), net.const(limit))

    def cut() -> list[tuple[str, str, list[Any]]]:
        return [(net.slice(x.name, 1, 0, limit), "float32", [None, None, channels])]

    def pad() -> list[tuple[str, str, list[Any]]]:
        missing = net.op("Sub", net.const([limit]), net.dim(x.name, 1))
        return [
            (
                net.op("Pad", x.name, net.shape(0, 0, 0, 0, missing, 0)),
                "float32",
                [None, None, channels],
            )
        ]

    y = net.op("If", is_long, then_branch=net.body([], cut), else_branch=net.body([], pad))
    return Tensor(net.reshape(y, 0, -1, channels), 3, channels)


def pooled(net: Network, x: Tensor) -> Tensor:
    """A sequence as one vector."""
    y, form = x.name, net.integer(0, 5)
    if form == 0:
        y = net.op("Gather", y, net.const(net.one_of(0, -1)), axis=1)
    elif form == 1:
        y = net.op("ReduceMean", y, axes=[1], keepdims=0)
    elif form == 2:
        y = net.op("ReduceMax", y, axes=[1], keepdims=0)
    elif form == 3:
        weights = net.op("Softmax", net.dense(y, x.channels, 1), axis=1)
        y = net.op("ReduceSum", net.op("Mul", y, weights), net.const([1]), keepdims=0)
    elif form == 4:
        last = net.op("Sub", net.dim(y, 1), net.const([1]))
        y = net.op("Squeeze", net.slice(y, 1, last, net.dim(y, 1)), net.const([1]))
    else:
        mean = net.op("ReduceMean", y, axes=[1], keepdims=1)
        spread = net.op(
            "ReduceMean", net.op("Pow", net.op("Sub", y, mean), net.const(np.float32(2))), axes=[1]
        )
        y = net.op(
            "Squeeze", net.op("Concat", mean, net.op("Sqrt", spread), axis=2), net.const([1])
        )
        return Tensor(y, 2, 2 * x.channels)
    return Tensor(y, 2, x.channels)
