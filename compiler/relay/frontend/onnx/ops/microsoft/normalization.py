"""Normalizations with what onnxruntime fused in front of them and behind."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape

from ...node import Node
from ..elementwise import number
from ..normalization import layer_normalization, rms_normalization
from .activation import gated
from .fused import channels_first, channels_last


def _normalized(
    node: Node, data: relax.Expr, gamma: relax.Expr, beta: relax.Expr | None, epsilon: float
) -> list[relax.Expr]:
    """The layer norm of the last axis; mean and deviation where the node asks for them."""
    attrs = {"axis": -1, "epsilon": epsilon}
    return layer_normalization(replace(node, inputs=[data, gamma, beta], attrs=attrs))


def skip_layer_normalization(node: Node) -> list[relax.Expr | None]:
    """`nn.layer_norm` of a sum, whose statistics and the sum itself may be asked for.

    The operands are data, skip, scale, and a shift and a bias that may be left out.
    """
    total = _sum(node, 4)
    results = _normalized(node, total, node[2], node.get(3), node.attr("epsilon", 1e-12))
    return [*results, *[None] * (3 - len(results)), total]


def skip_rms_normalization(node: Node) -> list[relax.Expr | None]:
    """SkipLayerNormalization without mean and shift: x / sqrt(mean(x * x) + epsilon)."""
    if any(node.proto.output[1:3]):
        raise node.unsupported("mean and deviation, which training needs, are not supported")
    total = _sum(node, 3)
    attrs = {"axis": -1, "epsilon": node.attr("epsilon", 1e-12)}
    result = rms_normalization(replace(node, inputs=[total, node[2]], attrs=attrs))
    return [result, None, None, total]


def _sum(node: Node, bias: int) -> relax.Expr:
    """Data plus skip, which may lack the batch, plus the bias of that index if there is one."""
    total = node.emit(relax.op.add(node[0], node[1]))
    return total if node.get(bias) is None else node.emit(relax.op.add(total, node[bias]))


def embed_layer_normalization(node: Node) -> list[relax.Expr | None]:
    """The layer norm of the sum of a word's, its position's and its segment's embedding."""
    node.attr("mask_index_type")  # of shape inference
    operands = [node.get(index) for index in range(2, 7)]
    return _embedded(node, operands, node.get(1), node.get(7), node.get(8))


def _embedded(
    node: Node,
    tables: list[relax.Expr | None],
    segments: relax.Expr | None,
    mask: relax.Expr | None,
    positions: relax.Expr | None,
) -> list[relax.Expr | None]:
    """(norm, words in front of the padding, sum); `tables` are words, positions, segments, scale
    and shift."""
    words, places, kinds, gamma, beta = tables
    batch, length = node.shape(0)
    if positions is None:
        places = relax.op.strided_slice(places, [0], [0], [length])
    else:
        places = _rows(places, positions)
    total = node.emit(relax.op.add(_rows(words, node[0]), places))
    if kinds is not None and segments is not None:
        total = node.emit(relax.op.add(total, _rows(kinds, segments)))
    assert gamma is not None
    epsilon = node.attr("epsilon", 1e-12)
    inner = replace(node, proto=_first_output(node))
    (result,) = _normalized(inner, total, gamma, beta, epsilon)
    if mask is None:
        count = constant(np.zeros(batch, "int32"))
    else:
        count = relax.op.sum(relax.op.astype(relax.op.equal(mask, number(1, mask)), "int32"), 1)
    return [result, count, total]


def _rows(table: relax.Expr | None, ids: relax.Expr) -> relax.Expr:
    """The rows of a table that the ids choose, which are checked; none counts from the end."""
    return relax.op.take(table, ids, 0, mode="fast")


def _first_output(node: Node):  # type: ignore[no-untyped-def]
    """The node without all outputs but the first."""
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    del proto.output[1:]
    return proto


def quantized_embed_layer_normalization(node: Node) -> list[relax.Expr | None]:
    """EmbedLayerNormalization with tables of 8 bits."""
    from ..quantization import dequantize

    tables: list[relax.Expr | None] = []
    for index in range(2, 7):
        table = node.get(index)
        if table is not None:
            table = dequantize(node, table, node[index + 6], node[index + 11], 0)
        tables.append(table)
    return _embedded(node, tables, node.get(1), node.get(7), None)


def group_normalization(node: Node) -> relax.Expr:
    """Group norm of a channels-last or channels-first tensor, with a SiLU behind."""
    return _group_norm(node, node[0])


def skip_group_normalization(node: Node) -> list[relax.Expr]:
    """GroupNorm of data plus skip plus bias, and that sum."""
    shape, skip = node.shape(0), node[3]
    extents = node.shape(3)
    if len(extents) == 2:
        skip = relax.op.reshape(skip, _along_channels(node, extents, len(shape)))
    total = relax.op.add(node[0], skip)
    if node.get(4) is not None:
        bias = relax.op.reshape(node[4], _along_channels(node, (1, *node.shape(4)), len(shape)))
        total = relax.op.add(total, bias)
    total = node.emit(total)
    return [_group_norm(node, total), total]


def _along_channels(node: Node, extents: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """(samples, channels) as a shape of that rank."""
    batch, channels = extents
    ones = (1,) * (rank - 2)
    last = node.attr("channels_last", 1)
    return (batch, *ones, channels) if last else (batch, channels, *ones)


def _group_norm(node: Node, data: relax.Expr) -> relax.Expr:
    last = node.attr("channels_last", 1)
    if last:
        data = channels_first(node, data)
    shape = static_shape(data)
    assert shape is not None
    dtype = node.dtype(0)
    gamma, beta = (relax.op.astype(node[i], dtype) for i in (1, 2))
    result = node.emit(
        relax.op.nn.group_norm(
            data,
            node.emit(gamma),
            node.emit(beta),
            node.required("groups"),
            1,
            list(range(2, len(shape))),
            node.attr("epsilon", 1e-5),
        )
    )
    activation = node.attr("activation")
    if activation not in (0, 1):
        raise node.unsupported(f"the activation {activation} is neither 0 (none) nor 1 (SiLU)")
    if activation:
        result = node.emit(gated(result))
    return channels_last(node, result) if last else result


def gated_rms_normalization(node: Node) -> relax.Expr:
    """RMS norm of groups of as many elements as the scale has, times the activated gate."""
    shape, size = node.shape(0), math.prod(node.shape(1))
    activation = node.attr("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        raise node.unsupported(f"the activation {activation!r} is not supported")
    data = relax.op.reshape(node[0], (*shape[:-1], shape[-1] // size, size))
    attrs = {"axis": -1, "epsilon": node.attr("epsilon", 1e-5)}
    wide = [node.emit(relax.op.astype(value, "float32")) for value in (data, node[1], node[2])]
    normal = rms_normalization(replace(node, inputs=wide[:2], attrs=attrs))
    gate = relax.op.sigmoid(wide[2]) if activation == "sigmoid" else gated(wide[2])
    result = relax.op.multiply(relax.op.reshape(normal, shape), gate)
    return relax.op.astype(result, node.dtype(0))


CONVERTERS = {
    "EmbedLayerNormalization": embed_layer_normalization,
    "GatedRMSNorm": gated_rms_normalization,
    "GroupNorm": group_normalization,
    "QEmbedLayerNormalization": quantized_embed_layer_normalization,
    "SkipGroupNorm": skip_group_normalization,
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_rms_normalization,
}
