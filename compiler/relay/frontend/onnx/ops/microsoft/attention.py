"""Attention as onnxruntime fuses it, spelled as exporters do, to get the same kernels."""

from __future__ import annotations

import functools
import math

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape

from ...node import Node, dtype_of
from ..elementwise import number

LOWEST = float(np.finfo("float32").min)


def split_heads(node: Node, data: relax.Expr, heads: int) -> relax.Expr:
    """(B, S, heads * C) as (B, heads, S, C)."""
    batch, length, hidden = _shape(data)
    if hidden % heads:
        raise node.unsupported(f"{hidden} columns can't be split into {heads} heads")
    apart = node.emit(relax.op.reshape(data, (batch, length, heads, hidden // heads)))
    return node.emit(relax.op.permute_dims(apart, [0, 2, 1, 3]))


def scores(
    node: Node, q: relax.Expr, k: relax.Expr, scale: float | None, softcap: float = 0.0
) -> relax.Expr:
    """(B, N, S, T): products of queries (B, N, S, C) and keys (B, N, T, C), scaled.

    A `scale` of None or 0 is 1 / sqrt(C). With a `softcap` other than 0, scores become softcap *
    tanh(scores / softcap).
    """
    turned = node.emit(relax.op.permute_dims(k, [0, 1, 3, 2]))
    product = node.emit(relax.op.matmul(q, turned))
    factor = scale or 1.0 / math.sqrt(_shape(q)[-1])
    product = node.emit(relax.op.multiply(product, number(factor, product)))
    if softcap:
        cap = number(softcap, product)
        bent = relax.op.tanh(node.emit(relax.op.divide(product, cap)))
        product = node.emit(relax.op.multiply(bent, cap))
    return product


def join_heads(node: Node, data: relax.Expr) -> relax.Expr:
    """(B, N, S, C) as (B, S, N * C)."""
    batch, heads, length, columns = _shape(data)
    joined = node.emit(relax.op.permute_dims(data, [0, 2, 1, 3]))
    return node.emit(relax.op.reshape(joined, (batch, length, heads * columns)))


def _shape(data: relax.Expr) -> tuple[int, ...]:
    extents = static_shape(data)
    assert extents is not None
    return extents


def padding_mask(
    node: Node, index: int, batch: int, rows: int, past: int, keys: int, dtype: str
) -> relax.Expr | None:
    """Additive mask of scores (B, N, S, T) from operand `index`: 0, or the filter value.

    `rows` is S, `keys` is T, of which the first `past` are of the past.
    """
    filtered = node.attr("mask_filter_value", -10000.0)
    mask = node.get(index)
    if mask is None:
        return None
    shape = node.shape(index)
    places = constant(np.arange(keys, dtype="int32"))
    if shape in ((batch,), (2 * batch,), (3 * batch + 2,)) and shape != (batch, keys):
        # How many keys are in front of the padding; then, or not, where they begin.
        mask = node.emit(relax.op.astype(mask, "int32"))
        ends = relax.op.reshape(relax.op.strided_slice(mask, [0], [0], [batch]), (batch, 1, 1, 1))
        kept = relax.op.less(places, node.emit(ends))
        if shape == (2 * batch,):
            begins = relax.op.strided_slice(mask, [0], [batch], [2 * batch])
            begins = node.emit(relax.op.reshape(begins, (batch, 1, 1, 1)))
            kept = relax.op.logical_and(kept, relax.op.greater_equal(places, begins))
    else:
        if shape == (batch, keys):
            mask = relax.op.reshape(mask, (batch, 1, 1, keys))
        elif shape == (batch, rows, keys):
            mask = relax.op.reshape(mask, (batch, 1, rows, keys))
        elif len(shape) == 4 and shape[:2] == (batch, 1) and min(shape[2:]) >= keys:
            mask = relax.op.strided_slice(mask, [2, 3], [past, 0], [past + rows, keys])
        else:
            raise node.unsupported(f"a mask of shape {shape} is not supported")
        mask = node.emit(mask)
        kept = relax.op.greater(mask, number(0, mask))
    chosen = relax.op.where(node.emit(kept), relax.const(0.0, dtype), relax.const(filtered, dtype))
    return node.emit(chosen)


def causal_mask(rows: int, past: int, keys: int, dtype: str) -> relax.Expr:
    """(S, T): the lowest number for keys behind a query's own, which is `past` further on."""
    behind = np.arange(keys) > np.arange(rows)[:, None] + past
    return constant(np.where(behind, LOWEST, 0.0).astype(dtype))


def _refuse(node: Node, *names: str) -> None:
    for name in names:
        if node.attr(name, 0):
            raise node.unsupported(f"{name}={node.attr(name)} is not supported")


def attention(node: Node) -> list[relax.Expr]:
    """Attention of what one product with packed weights makes of the input."""
    sizes = node.attr("qkv_hidden_sizes")
    hidden = node.shape(1)[1]
    sizes = list(sizes) if sizes else [hidden // 3] * 3
    if len(sizes) != 3 or sum(sizes) != hidden or sizes[0] != sizes[1]:
        raise node.unsupported(f"weights of {hidden} columns are not q, k and v of {sizes}")
    parts = _projected(node, node[0], node[1], [sizes[0], sizes[0] + sizes[1]])
    if node.get(6) is not None:
        raise node.unsupported("a past of a length that is an operand is not supported")
    return attend(node, parts, mask=3, past=node.get(4), bias=node.get(5))


def attend(
    node: Node,
    parts: list[relax.Expr],
    mask: int,
    past: relax.Expr | None,
    bias: relax.Expr | None = None,
) -> list[relax.Expr]:
    """(result, keys and values of past and present), of projected q, k and v (B, S, N * C).

    `mask` is an operand's index; `past` (2, B, N, P, C) has keys and values.
    """
    _refuse(node, "do_rotary", "past_present_share_buffer")
    node.attr("rotary_embedding_dim")
    heads = node.required("num_heads")
    q, k, v = (split_heads(node, part, heads) for part in parts)
    length = 0
    if past is not None:
        length = _shape(past)[3]
        k, v = (
            node.emit(relax.op.concat([_entry(node, past, i), value], axis=2))
            for i, value in enumerate((k, v))
        )
    result, _ = _attended(node, q, k, v, mask, length, bias)
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return [result]
    return [result, relax.op.stack([k, v], axis=0)]


def _attended(
    node: Node,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    mask: int,
    past: int,
    bias: relax.Expr | None,
) -> tuple[relax.Expr, relax.Expr]:
    """(result (B, S, N * C), masked scores (B, N, S, T)); `past` of the keys are of the past."""
    product = scores(node, q, k, node.attr("scale"))
    batch, _, rows, keys = _shape(product)
    dtype = dtype_of(product)
    masks = [padding_mask(node, mask, batch, rows, past, keys, dtype), bias]
    if node.attr("unidirectional", 0):
        masks.insert(0, causal_mask(rows, past, keys, dtype))
    given = [each for each in masks if each is not None]
    if given:
        total = functools.reduce(lambda one, other: node.emit(relax.op.add(one, other)), given)
        product = node.emit(relax.op.add(product, total))
    weights = node.emit(relax.op.nn.softmax(product, -1))
    return join_heads(node, node.emit(relax.op.matmul(weights, v))), product


def _entry(node: Node, stack: relax.Expr, index: int) -> relax.Expr:
    """One entry along the first axis."""
    return node.emit(relax.op.take(stack, relax.const(index, "int64"), axis=0))


def quantized_attention(node: Node) -> list[relax.Expr]:
    """Attention of quantized input and weights."""
    from ..quantization import dequantize

    data = dequantize(node, node[0], node[3], node.get(6), 2)
    weights = dequantize(node, node[1], node[4], node.get(7), 1)
    hidden = node.shape(1)[1]
    if hidden % 3:
        raise node.unsupported(f"{hidden} columns are not three times as many")
    return attend(node, _projected(node, data, weights, 3), mask=5, past=node.get(8))


def _projected(
    node: Node, data: relax.Expr, packed: relax.Expr, bounds: list[int] | int
) -> list[relax.Expr]:
    """q, k and v: data times the weights between `bounds`, plus the bias, operand 2."""
    weights = node.emit(relax.op.split(packed, bounds, axis=1))
    biases = None if node.get(2) is None else node.emit(relax.op.split(node[2], bounds, axis=0))
    parts = []
    for i in range(3):
        part = relax.op.matmul(data, node.emit(relax.TupleGetItem(weights, i)))
        if biases is not None:
            part = relax.op.add(node.emit(part), node.emit(relax.TupleGetItem(biases, i)))
        parts.append(node.emit(part))
    return parts


def multi_head_attention(node: Node) -> list[relax.Expr | None]:
    """Attention of queries, keys and values that are projected already."""
    if node.get(8) is not None or node.get(9) is not None:
        raise node.unsupported("caches that past and present share are not supported")
    q, k, v = _heads_of_operands(node)
    length = 0
    if node.get(6) is not None:
        length = node.shape(6)[2]
        k = node.emit(relax.op.concat([node[6], k], axis=2))
        v = node.emit(relax.op.concat([node[7], v], axis=2))
    result, product = _attended(node, q, k, v, 4, length, node.get(5))
    return [result, k, v, product][: len(node.proto.output)]


def _heads_of_operands(node: Node) -> list[relax.Expr]:
    """q, k and v (B, N, S, C) of any form in which MultiHeadAttention takes them."""
    heads = node.required("num_heads")
    if len(node.shape(0)) == 5:
        parts = _unpacked(node, 0, 3)
    elif node.get(1) is None:
        raise node.unsupported("keys are missing")
    elif len(node.shape(1)) == 5:
        parts = [node[0], *_unpacked(node, 1, 2)]
    else:
        parts = [node[0], node[1], node[2]]
    is_split = [len(_shape(part)) == 4 for part in parts]
    if node.get(3) is not None:
        widths = [
            _shape(part)[1] * _shape(part)[3] if split else _shape(part)[2]
            for part, split in zip(parts, is_split)
        ]
        bounds = [widths[0], widths[0] + widths[1]]
        biases = node.emit(relax.op.split(node[3], bounds, axis=0))
        parts = [
            part
            if split
            else node.emit(relax.op.add(part, node.emit(relax.TupleGetItem(biases, i))))
            for i, (part, split) in enumerate(zip(parts, is_split))
        ]
    return [
        part if split else split_heads(node, part, heads) for part, split in zip(parts, is_split)
    ]


def _unpacked(node: Node, index: int, count: int) -> list[relax.Expr]:
    """The parts (B, L, N * C) of an operand (B, L, N, count, C)."""
    batch, length, heads, _, columns = node.shape(index)
    return [
        node.emit(
            relax.op.reshape(
                node.emit(relax.op.take(node[index], relax.const(i, "int64"), axis=3)),
                (batch, length, heads * columns),
            )
        )
        for i in range(count)
    ]


CONVERTERS = {
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantized_attention,
}
