"""Whole networks that are no chain of stages, and chains of stages."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import images, sequences
from .net import Network, Tensor


def cached_decoder(net: Network) -> None:
    """A decoder's step: tokens, past keys and values, a mask of what was padded."""
    batch, new, past = net.axis("batch", 1, 3), net.axis("new", 1, 4), net.axis("past", 1, 9)
    heads, groups, width = 2, net.one_of(1, 2), 4
    channels = heads * groups * width
    ids = net.input((batch, new), "int64", 20)
    x = net.op("Gather", net.weight(20, channels, scale=1.0), ids)
    length, layers = net.dim(ids, 1), net.integer(1, 2)
    mask = sequences_mask = None
    for _ in range(layers):
        keys, values = (net.input((batch, heads, past, width)) for _ in range(2))
        before = net.dim(keys, 2)
        cosine, sine = sequences.rotary(net, length, width, before)
        if mask is None or net.chance(0.2):
            mask = sequences_mask = causal(net, length, before)
        y = net.layer_norm(x, channels)
        q = net.heads(net.dense(y, channels, channels), heads * groups, width)
        k, v = (net.heads(net.dense(y, channels, heads * width), heads, width) for _ in range(2))
        q, k = (sequences.rotated(net, each, cosine, sine, width) for each in (q, k))
        k, v = (net.op("Concat", old, each, axis=2) for old, each in ((keys, k), (values, v)))
        net.outputs += [k, v]
        if groups > 1:
            k, v = (repeated(net, each, heads, groups, width) for each in (k, v))
        x = net.op("Add", x, net.joined(net.attention(q, k, v, width, sequences_mask), channels))
        x = sequences.feed_forward(net, Tensor(x, 3, channels)).name
    if net.chance():
        x = (
            net.slice(x, 1, -1, 1 << 62)
            if net.chance()
            else net.op("Gather", x, net.const(-1), axis=1)
        )
    net.outputs.append(net.op("MatMul", x, net.weight(channels, 20)))


def causal(net: Network, new: str, past: str) -> str:
    """A causal mask (new, past + new)."""
    whole = net.op("Add", past, new)
    zero, one = net.const(0), net.const(1)
    rows = net.op(
        "Unsqueeze", net.op("Range", net.scalar(past), net.scalar(whole), one), net.const([1])
    )
    columns = net.op("Unsqueeze", net.op("Range", zero, net.scalar(whole), one), net.const([0]))
    if net.chance():
        return str(
            net.op(
                "Where",
                net.op("Greater", columns, rows),
                net.const(np.float32(-1e4)),
                net.const(np.float32(0)),
            )
        )
    square = net.op(
        "Trilu",
        net.op(
            "ConstantOfShape",
            net.op("Concat", whole, whole, axis=0),
            value=sequences.one(np.float32(-1e4)),
        ),
        net.const(1),
        upper=1,
    )
    return net.slice(square, 0, past, whole)


def repeated(net: Network, x: str, heads: int, groups: int, width: int) -> str:
    """Keys or values of grouped heads, repeated."""
    batch, length = net.dim(x, 0), net.dim(x, 2)
    wide = net.op("Unsqueeze", x, net.const([2]))
    y = net.op("Expand", wide, net.shape(batch, heads, groups, length, width))
    return net.reshape(y, batch, heads * groups, length, width)


def graph(net: Network) -> None:
    """Message passing over edges, and pooling over nodes."""
    many, edges, channels = net.axis("nodes", 3, 9), net.axis("edges", 4, 16), net.one_of(4, 6)
    x = net.input((many, channels))
    index = net.input((2, edges), "int64", many)
    source, target = (net.op("Gather", index, net.const(i), axis=0) for i in range(2))
    for _ in range(net.integer(1, 2)):
        left = net.op("Gather", x, source, axis=0)
        message = net.activation(
            net.dense(
                net.op("Concat", left, net.op("Gather", x, target, axis=0), axis=1),
                2 * channels,
                channels,
            )
        )
        if net.chance(0.4):  # attention over edges
            message = net.op("Mul", message, net.op("Sigmoid", net.dense(message, channels, 1)))
        zeros = net.op("ConstantOfShape", net.shape(net.dim(x, 0), channels))
        rows = net.op("Unsqueeze", target, net.const([1]))
        if net.chance():
            wide = net.op("Expand", rows, net.op("Shape", message))
            summed = net.op("ScatterElements", zeros, wide, message, axis=0, reduction="add")
        else:
            summed = net.op("ScatterND", zeros, rows, message, reduction="add")
        if net.chance(0.4):
            ones = net.op("ConstantOfShape", net.dim(target, 0), value=sequences.one(np.float32(1)))
            degree = net.op(
                "ScatterND", net.op("ConstantOfShape", net.dim(x, 0)), rows, ones, reduction="add"
            )
            summed = net.op(
                "Div",
                summed,
                net.op(
                    "Max", net.op("Unsqueeze", degree, net.const([1])), net.const(np.float32(1))
                ),
            )
        x = net.activation(
            net.op("Add", net.dense(x, channels, channels), net.dense(summed, channels, channels))
        )
    form = net.integer(0, 3)
    if form == 0:
        net.outputs.append(x)
    elif form == 1:
        net.outputs.append(net.op("ReduceMean", x, axes=[0], keepdims=0))
    elif form == 2:  # the best half of the nodes
        score = net.op("Squeeze", net.dense(x, channels, 1), net.const([1]))
        half = net.op("Div", net.op("Add", net.dim(x, 0), net.const([1])), net.const([2]))
        best = net.op("TopK", score, half, outputs=2)
        kept = net.op("Gather", x, best[1], axis=0)
        net.outputs.append(
            net.op("Mul", kept, net.op("Unsqueeze", net.op("Tanh", best[0]), net.const([1])))
        )
    else:  # several graphs in a batch
        batch = net.input((many,), "int64", 3)
        wide = net.op("Expand", net.op("Unsqueeze", batch, net.const([1])), net.op("Shape", x))
        count = (
            net.op("Add", net.op("ReduceMax", batch, keepdims=1), net.const([1]))
            if net.chance(0.4)
            else net.const([3])
        )
        zeros = net.op("ConstantOfShape", net.shape(count, channels))
        net.outputs.append(
            net.op("ScatterElements", zeros, wide, x, axis=0, reduction=net.one_of("add", "max"))
        )


def points(net: Network) -> None:
    """A point cloud: nearest neighbors and their features (DGCNN, PointNet++)."""
    batch, many, channels = net.axis("batch", 1, 2), net.axis("points", 5, 12), 3
    x = net.input((batch, many, channels))
    inner = net.op("MatMul", x, net.transpose(x, 0, 2, 1))
    square = net.op("ReduceSum", net.op("Mul", x, x), net.const([2]), keepdims=1)
    apart = net.op(
        "Add",
        net.op("Sub", square, net.op("Mul", inner, net.const(np.float32(2)))),
        net.transpose(square, 0, 2, 1),
    )
    count = net.one_of(2, 4)
    k = net.op("Min", net.const([count]), net.dim(x, 1)) if net.chance(0.4) else net.const([count])
    near = net.op("TopK", apart, k, largest=0, outputs=2)[1]
    if net.chance():
        line = net.op("Range", net.const(0), net.scalar(net.dim(x, 0)), net.const(1))
        rows = net.op("Expand", net.reshape(line, -1, 1, 1), net.op("Shape", near))
        index = net.op(
            "Concat", *(net.op("Unsqueeze", each, net.const([3])) for each in (rows, near)), axis=3
        )
        around = net.op("GatherND", x, index)
    else:
        flat = net.reshape(near, net.dim(x, 0), -1, 1)
        flat = net.op("Expand", flat, net.const([1, 1, channels]))
        around = net.reshape(
            net.op("GatherElements", x, flat, axis=1), net.dim(x, 0), net.dim(x, 1), -1, channels
        )
    edges = net.op("Sub", around, net.op("Unsqueeze", x, net.const([2])))
    y = net.op("ReduceMax", net.activation(net.dense(edges, channels, 8)), axes=[2], keepdims=0)
    finish(
        net, sequences.attention_block(net, Tensor(y, 3, 8)) if net.chance(0.3) else Tensor(y, 3, 8)
    )


def recommender(net: Network) -> None:
    """Embedded fields that interact, and a masked history of items."""
    batch, fields, width = net.axis("batch", 1, 4), net.integer(3, 4), 4
    ids = net.input((batch, fields), "int64", 12)
    vectors = net.op("Gather", net.weight(12, width, scale=1.0), ids, axis=0)
    parts = [net.reshape(vectors, net.one_of(-1, 0, net.dim(ids, 0)), fields * width)]
    given = fields * width
    form = net.integer(0, 2)
    if form == 0:  # factorization machine
        total = net.op("ReduceSum", vectors, net.const([1]), keepdims=0)
        squares = net.op("ReduceSum", net.op("Mul", vectors, vectors), net.const([1]), keepdims=0)
        parts.append(net.op("Sub", net.op("Mul", total, total), squares))
        given += width
    elif form == 1:  # DLRM
        products = net.op("MatMul", vectors, net.transpose(vectors, 0, 2, 1))
        rows, columns = np.tril_indices(fields, -1)
        flat = net.reshape(products, 0, fields * fields)
        parts.append(net.op("Gather", flat, net.const(rows * fields + columns), axis=1))
        given += len(rows)
    else:
        numbers = net.input((batch, 3))
        parts.append(
            net.op("Log", net.op("Add", net.op("Relu", numbers), net.const(np.float32(1))))
        )
        given += 3
    if net.chance():
        history = net.axis("history", 2, 8)
        items = net.input((batch, history), "int64", 12)
        seen = net.op("Gather", net.weight(12, width, scale=1.0), items, axis=0)
        valid = net.op("Not", net.op("Equal", items, net.const(0)))
        query = net.slice(vectors, 1, 0, 1)
        shape = net.op("Shape", seen)
        query = net.op("Expand", query, shape) if net.chance() else query
        score = net.op("ReduceSum", net.op("Mul", seen, query), net.const([2]), keepdims=0)
        score = net.op("Where", valid, score, net.const(np.float32(-1e4)))
        weights = net.op("Unsqueeze", net.op("Softmax", score, axis=1), net.const([1]))
        parts.append(net.op("Squeeze", net.op("MatMul", weights, seen), net.const([1])))
        given += width
    y = net.activation(net.dense(net.op("Concat", *parts, axis=1), given, 8))
    net.outputs.append(net.op("Sigmoid", net.dense(y, 8, 1)))


def generator(net: Network) -> None:
    """A generator: latent vectors as small images, enlarged."""
    batch, channels, size = net.axis("batch", 1, 3, 0.9), 6, net.one_of(2, 3, 4)
    y = net.dense(net.input((batch, 5)), 5, channels * size * size)
    y = net.reshape(y, net.one_of(-1, 0), channels, size, size)
    made = images.upsampler(net, Tensor(y, 4, channels))
    net.outputs.append(net.op("Tanh", images.conv(net, made.name, made.channels, 3)))


def durations(net: Network) -> None:
    """Text stretched by durations that the network computes (FastSpeech, VITS)."""
    x = sequences.tokens(net)
    length = net.dim(x.name, 1)
    logits = net.op("Squeeze", net.dense(x.name, x.channels, 1), net.const([2]))
    lasts = net.op("Ceil", net.op("Add", net.op("Sigmoid", logits), net.op("Relu", logits)))
    ends = net.op("CumSum", lasts, net.const(1))
    total = net.op("Cast", net.op("ReduceMax", ends, keepdims=0), to=7)
    line = net.op("Cast", net.op("Range", net.const(0), total, net.const(1)), to=1)
    before = net.op("Unsqueeze", net.op("Sub", ends, lasts), net.const([1]))
    ends, line = net.op("Unsqueeze", ends, net.const([1])), net.reshape(line, 1, -1, 1)
    path = net.op("And", net.op("Less", line, ends), net.op("GreaterOrEqual", line, before))
    y = net.op("MatMul", net.op("Cast", path, to=1), x.name)
    if net.chance(0.3):
        net.outputs.append(length)
    finish(net, sequences.temporal(net, Tensor(y, 3, x.channels)))


def greedy(net: Network) -> None:
    """A greedy decoder: a Loop whose tokens, or whose cache, grow by one each turn."""
    batch, length = net.axis("batch", 1, 2), net.axis("length", 2, 6)
    table, weight = net.weight(9, 6, scale=1.0), net.weight(6, 9)
    memory = net.op("Gather", table, net.input((batch, length), "int64", 9), axis=0)
    start = net.op(
        "ConstantOfShape", net.shape(net.dim(memory, 0), 1), value=sequences.one(np.int64(1))
    )
    whole, stops = net.chance(), net.chance(0.3)

    def turn() -> list[tuple[str, str, list[Any]]]:
        tokens = "tokens_in" if whole else net.slice("tokens_in", 1, -1, 1 << 62)
        x = net.op("Gather", table, tokens, axis=0)
        scores = net.op("MatMul", x, net.transpose(memory, 0, 2, 1))
        seen = net.op("MatMul", net.op("Softmax", scores, axis=-1), memory)
        logits = net.op("MatMul", net.op("Add", x, seen), weight)
        best = net.op(
            "ArgMax", net.op("Gather", logits, net.const(-1), axis=1), axis=-1, keepdims=1
        )
        grown = net.op("Concat", "tokens_in", best, axis=1)
        going = net.op("Identity", "go_in")
        if stops:
            count = net.op(
                "ReduceSum", net.op("Cast", net.op("Equal", best, net.const(0)), to=7), keepdims=0
            )
            going = net.op("Less", count, net.const(1))
        return [(going, "bool", []), (grown, "int64", [None, None])]

    body = net.body(
        [("turn_in", "int64", []), ("go_in", "bool", []), ("tokens_in", "int64", [None, None])],
        turn,
    )
    count = net.scalar(net.dim(memory, 1)) if net.chance() else net.const(net.integer(2, 4))
    net.outputs.append(net.op("Loop", count, net.const(np.array(True)), start, body=body))


def experts(net: Network) -> None:
    """A mixture of experts: tokens gathered for each expert and added back."""
    x = sequences.tokens(net)
    flat = net.reshape(x.name, -1, x.channels)
    gates = net.op("Softmax", net.dense(flat, x.channels, 3), axis=-1)
    best = net.op("TopK", gates, net.const([net.one_of(1, 2)]), outputs=2)
    total = net.op("Mul", flat, net.const(np.float32(0)))
    for expert in range(2):
        chosen = net.op("Equal", best[1], net.const(expert))
        where = net.op("NonZero", net.op("Cast", chosen, to=7))
        rows = net.op("Gather", where, net.const(0), axis=0)
        inner = net.dense(net.op("Gather", flat, rows, axis=0), x.channels, x.channels)
        weight = net.op("GatherND", best[0], net.transpose(where, 1, 0))
        inner = net.op("Mul", net.activation(inner), net.op("Unsqueeze", weight, net.const([1])))
        total = net.op(
            "ScatterND", total, net.op("Unsqueeze", rows, net.const([1])), inner, reduction="add"
        )
    net.outputs.append(net.op("Reshape", total, net.op("Shape", x.name)))


def video(net: Network) -> None:
    """Convolutions over time and space."""
    channels = net.one_of(1, 3)
    dims = (
        net.axis("batch", 1, 2),
        channels,
        net.axis("frames", 3, 6),
        net.axis("height", 8, 12),
        net.axis("width", 8, 12),
    )
    y = net.op(
        "Conv", net.input(dims), net.weight(4, channels, 3, 3, 3), strides=[1, 2, 2], pads=[1] * 6
    )
    y = net.activation(y)
    if net.chance():
        y = net.op(
            net.one_of("MaxPool", "AveragePool"),
            y,
            kernel_shape=[2] * 3,
            strides=[net.one_of(1, 2), 2, 2],
        )
    if net.chance():
        y = net.op("Conv", y, net.weight(4, 1, 3, 1, 1), pads=[1, 0, 0, 1, 0, 0], group=4)
    form = net.integer(0, 2)
    if form == 0:
        net.outputs.append(net.op("Flatten", net.op("GlobalAveragePool", y)))
        return
    if form == 1:  # frames as elements of the batch
        folded = net.reshape(net.transpose(y, 0, 2, 1, 3, 4), -1, 4, net.dim(y, 3), net.dim(y, 4))
        net.outputs.append(images.conv(net, folded, 4, 4))
        return
    finish(
        net,
        Tensor(
            net.op("ReduceMean", net.transpose(y, 0, 2, 1, 3, 4), axes=[3, 4], keepdims=0), 3, 4
        ),
    )


def cross_attention(net: Network) -> None:
    """A decoder over the memory of an encoder, or latents that read one (Perceiver)."""
    memory = sequences.features(net)
    if net.chance():
        length = net.axis("target", 1, 6)
        first = net.inputs[memory.name].dims[0]
        x = net.input((first, length, 8))
    else:
        x = net.op("Expand", net.weight(1, 3, 8), net.shape(net.dim(memory.name, 0), 3, 8))
    q = net.heads(net.dense(x, 8, 8), 2, 4)
    k, v = (net.heads(net.dense(memory.name, memory.channels, 8), 2, 4) for _ in range(2))
    mask = None
    if net.chance():
        valid = net.input(net.inputs[memory.name].dims[:2], "bool")
        wide = net.op("Unsqueeze", valid, net.const([1, 2]))
        mask = net.op("Where", wide, net.const(np.float32(0)), net.const(np.float32(-1e4)))
    if net.chance(0.3):
        scores = net.op("Einsum", q, k, equation="bhid,bhjd->bhij")
        y = net.op("Einsum", net.op("Softmax", scores, axis=-1), v, equation="bhij,bhjd->bhid")
    else:
        y = net.attention(q, k, v, 4, mask)
    y = Tensor(net.op("Add", x, net.joined(y, 8)), 3, 8)
    finish(net, sequences.feed_forward(net, y))


def finish(net: Network, x: Tensor) -> None:
    """The heads of a network whose last stage made `x`."""
    if x.rank == 4:
        form = net.integer(0, 3)
        if form == 0:
            net.outputs += images.boxes(net, x)
        elif form == 1:
            y = net.op("GlobalAveragePool", x.name)
            y = (
                net.op("Flatten", y)
                if net.chance()
                else net.reshape(y, net.one_of(-1, 0), x.channels)
            )
            net.outputs.append(
                net.op("Gemm", y, net.weight(5, x.channels), net.weight(5), transB=1)
            )
        elif form == 2:
            y = net.op("Conv", x.name, net.weight(3, x.channels, 1, 1))
            net.outputs.append(
                net.op("ArgMax", y, axis=1, keepdims=0)
                if net.chance(0.3)
                else net.op("Softmax", y, axis=1)
            )
        else:
            net.outputs.append(x.name)
        return
    if x.rank == 3 and net.chance():
        x = sequences.pooled(net, x)
        net.outputs.append(
            net.op("Gemm", x.name, net.weight(5, x.channels), net.weight(5), transB=1)
        )
        return
    y = net.dense(x.name, x.channels, 5)
    net.outputs.append(net.op("LogSoftmax", y, axis=-1) if net.chance(0.4) else y)


def of_images(net: Network) -> None:
    """Stages over images, then perhaps over sequences."""
    x = images.image(net)
    if net.chance(0.6):
        x = images.stem(net, x)
    stages = (
        images.residual,
        images.pyramid,
        images.upsampler,
        images.window_attention,
        images.sampled,
        images.multiscale,
    )
    for _ in range(net.integer(0, 2)):
        x = _stage(net, net.one_of(*stages), x)
    if net.chance(0.4):
        x = _stage(net, net.one_of(images.patches, images.columns, images.pixels), x)
        _over_sequences(net, x)
        return
    finish(net, x)


def of_sequences(net: Network) -> None:
    """Stages over tokens, feature vectors or signals."""
    start = net.one_of(sequences.tokens, sequences.features, sequences.waveform)
    net.stages.append(start.__name__)
    _over_sequences(net, start(net))


def _over_sequences(net: Network, x: Tensor) -> None:
    stages = (
        sequences.attention_block,
        sequences.recurrent,
        sequences.temporal,
        sequences.unsampled,
        sequences.relative_shift,
        sequences.chunks,
        sequences.halves,
        sequences.looped,
        sequences.branched,
    )
    for _ in range(net.integer(1, 3)):
        x = _stage(net, net.one_of(*stages), x)
    finish(net, x)


def _stage(net: Network, stage: Any, x: Tensor) -> Tensor:
    net.stages.append(stage.__name__)
    made = stage(net, x)
    assert isinstance(made, Tensor)
    return made


FAMILIES = (
    *(of_images, of_images, of_images, of_images, of_sequences, of_sequences, of_sequences),
    *(cached_decoder, graph, points, recommender, generator, durations, greedy, experts, video),
    cross_attention,
)
"""Families of networks; chains of stages are drawn more often."""


def draw(seed: int, number: int) -> Network:
    """Network `number` of the run that `seed` starts."""
    net = Network(np.random.default_rng([seed, number]))
    family = net.one_of(*FAMILIES)
    net.stages.append(family.__name__)
    family(net)
    return net
