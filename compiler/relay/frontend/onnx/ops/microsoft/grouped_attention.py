"""Rotary embeddings, and the attention of decoders: grouped heads, rotation and caches in one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, static_shape

from ...node import Node, dtype_of
from ..elementwise import number
from .attention import LOWEST, join_heads, multi_head_attention, scores, split_heads


def rotary_embedding(node: Node) -> relax.Expr:
    """Pairs of columns, turned by angles that their row's position chooses from two tables."""
    node.attr("scale")  # onnxruntime's kernels pass over it
    node.attr("is_packed_batching")  # lifts a limit of the length
    shape, half = node.shape(0), node.shape(2)[1]
    data, heads = node[0], node.attr("num_heads", 0)
    if not node.attr("rotary_embedding_dim", 0):
        heads = shape[-1] // (2 * half)
    if len(shape) == 3:
        data = split_heads(node, data, heads)
    extents = static_shape(data)
    assert extents is not None
    positions = node[1]
    if node.shape(1) == (1,):
        offsets = relax.const(np.arange(extents[2]), node.dtype(1))
        positions = node.emit(relax.op.add(positions, offsets))
        positions = node.emit(relax.op.expand_dims(positions, 0))
    turned = rotated(node, data, positions, node[2], node[3], bool(node.attr("interleaved", 0)))
    return join_heads(node, turned) if len(shape) == 3 else turned


def rotated(
    node: Node,
    data: relax.Expr,
    positions: relax.Expr,
    cosines: relax.Expr,
    sines: relax.Expr,
    interleaved: bool,
) -> relax.Expr:
    """Data (B, N, S, C), the first columns turned, by positions (B or 1, S) in tables (_, half).

    A pair is of columns that are `half` apart, or, interleaved, of neighbors.
    """
    batch, heads, rows, columns = static_shape(data) or ()
    half = (static_shape(cosines) or ())[1]
    cos, sin = (
        node.emit(relax.op.expand_dims(relax.op.take(table, positions, 0, mode="fast"), 1))
        for table in (cosines, sines)
    )
    turning = data
    if 2 * half != columns:
        turning = node.emit(relax.op.strided_slice(data, [3], [0], [2 * half]))
    pairs, axis = (batch, heads, rows, 2, half), 3
    if interleaved:
        pairs, axis = (batch, heads, rows, half, 2), 4
    both = node.emit(relax.op.reshape(turning, pairs))
    x, y = (node.emit(relax.op.take(both, relax.const(i, "int64"), axis=axis)) for i in (0, 1))
    across = relax.op.subtract(relax.op.multiply(x, cos), relax.op.multiply(y, sin))
    along = relax.op.add(relax.op.multiply(y, cos), relax.op.multiply(x, sin))
    stacked = relax.op.stack([node.emit(across), node.emit(along)], axis=axis)
    result = node.emit(relax.op.reshape(stacked, (batch, heads, rows, 2 * half)))
    if 2 * half == columns:
        return result
    rest = relax.op.strided_slice(data, [3], [2 * half], [columns])
    return node.emit(relax.op.concat([result, rest], axis=3))


@dataclass(frozen=True)
class _Lengths:
    """Rows of this step, rows of the longest sequence after it, and rows before it."""

    rows: int
    total: int
    past: relax.Expr | None  # (B, 1) of int32; None where no row is before this step

    def positions(self) -> relax.Expr:
        """(B or 1, S): the positions of this step's rows."""
        own = constant(np.arange(self.rows, dtype="int32")[None])
        return own if self.past is None else relax.op.add(self.past, own)


def grouped_attention(node: Node) -> list[relax.Expr | None]:
    """Causal attention in which several heads of queries share keys and values.

    The operands are queries, or queries, keys and values side by side, keys, values, a cache of
    each, the last position of each sequence, the length of the longest one, and what is optional.
    """
    _refuse_forms(node)
    q, k, v = _heads(node)
    batch, heads, rows, _ = static_shape(q) or ()
    lengths = _lengths(node, batch, rows)
    if node.attr("do_rotary", 0):
        positions = node.get(9)
        positions = node.emit(lengths.positions()) if positions is None else positions
        interleaved = bool(node.attr("rotary_interleaved", 0))
        q, k = (rotated(node, x, positions, node[7], node[8], interleaved) for x in (q, k))
    present = [_appended(node, node.get(i), new, lengths) for i, new in ((3, k), (4, v))]
    keys, values = (_for_heads(node, tensor, heads, lengths.total) for tensor in present)
    product = scores(node, q, keys, node.attr("scale"), node.attr("softcap", 0.0))
    if node.get(10) is not None:
        product = node.emit(relax.op.add(product, node[10]))
    mask = _mask(node, lengths, dtype_of(product))
    if mask is not None:
        product = node.emit(relax.op.add(product, mask))
    weights = _softmax(node, product)
    result = join_heads(node, node.emit(relax.op.matmul(weights, values)))
    shown = {0: None, 1: product, 2: weights}[node.attr("qk_output", 0)]
    return [result, *present, shown][: len(node.proto.output)]


def _refuse_forms(node: Node) -> None:
    for name in ("k_quant_type", "v_quant_type"):
        if node.attr(name, "NONE") != "NONE":
            raise node.unsupported("quantized caches are not supported")
    for name in ("kv_cache_bit_width", "qk_norm_epsilon", "k_norm_epsilon"):
        node.attr(name)  # they say something only with operands that are refused
    if node.attr("sliding_window_cache", 0):
        raise node.unsupported("a cache of the window's size is not supported")
    for index, what in (
        (12, "k_scale"),
        (13, "v_scale"),
        (14, "q_norm_weight"),
        (15, "k_norm_weight"),
        (16, "query_seqlens"),
    ):
        if node.get(index) is not None:
            raise node.unsupported(f"the operand {what} is not supported")


def _heads(node: Node) -> list[relax.Expr]:
    """q (B, N, S, C), k and v (B, G, S, C)."""
    count, groups = node.required("num_heads"), node.required("kv_num_heads")
    if node.get(1) is not None:
        parts = [node[0], node[1], node[2]]
    else:
        columns = node.shape(0)[2] // (count + 2 * groups)
        bounds = [count * columns, (count + groups) * columns]
        packed = node.emit(relax.op.split(node[0], bounds, axis=2))
        parts = [node.emit(relax.TupleGetItem(packed, i)) for i in range(3)]
    return [split_heads(node, x, n) for x, n in zip(parts, (count, groups, groups))]


def _lengths(node: Node, batch: int, rows: int) -> _Lengths:
    total = int(node.value(6, "the total sequence length").reshape(-1)[0])
    if node.get(3) is None and rows != total:
        raise node.unsupported(f"there is no cache, and {rows} rows are not all {total}")
    if rows == total:
        return _Lengths(rows, total, None)
    ends = relax.op.reshape(node[5], (batch, 1))
    past = relax.op.subtract(ends, relax.const(rows - 1, node.dtype(5)))
    return _Lengths(rows, total, node.emit(past))


def _appended(
    node: Node, cache: relax.Expr | None, new: relax.Expr, lengths: _Lengths
) -> relax.Expr:
    """The rows of a cache (B, G, P, C) that are past, then the new ones (B, G, S, C)."""
    if cache is None:
        return new
    batch, groups, held, columns = static_shape(cache) or ()
    size = max(held, lengths.total)
    if lengths.past is None:
        if held <= lengths.rows:
            return new
        rest = relax.op.strided_slice(cache, [2], [lengths.rows], [held])
        return node.emit(relax.op.concat([new, node.emit(rest)], axis=2))
    rows = constant(np.arange(size, dtype="int32")[None])
    step = node.emit(relax.op.subtract(rows, lengths.past))
    # Behind the new rows are such that nobody reads.
    moved = relax.op.clip(step, 0, lengths.rows - 1)
    moved = relax.op.add(node.emit(moved), relax.const(held, "int32"))
    kept = relax.op.minimum(rows, relax.const(held - 1, "int32"))
    is_past = relax.op.less(step, relax.const(0, "int32"))
    source = node.emit(relax.op.where(is_past, node.emit(kept), node.emit(moved)))
    source = relax.op.reshape(relax.op.astype(source, "int64"), (batch, 1, size, 1))
    wide = relax.op.broadcast_to(node.emit(source), (batch, groups, size, columns))
    both = node.emit(relax.op.concat([cache, new], axis=2))
    return node.emit(relax.op.gather_elements(both, node.emit(wide), 2))


def _for_heads(node: Node, tensor: relax.Expr, heads: int, total: int) -> relax.Expr:
    """The first `total` rows of keys or values (B, G, L, C), for each head (B, N, T, C)."""
    _, groups, size, _ = static_shape(tensor) or ()
    if size != total:
        tensor = node.emit(relax.op.strided_slice(tensor, [2], [0], [total]))
    if groups == heads:
        return tensor
    return node.emit(relax.op.repeat(tensor, heads // groups, axis=1))


def _mask(node: Node, lengths: _Lengths, dtype: str) -> relax.Expr | None:
    """Mask of keys after a row (causal) and before its window; None without a mask."""
    window = node.attr("local_window_size", -1)
    causal = node.attr("causal", 1)
    keys = np.arange(lengths.total, dtype="int32")
    if not causal:
        last = relax.op.reshape(node[5], (-1, 1, 1, 1))
        hidden = relax.op.greater(constant(keys), node.emit(last))
    elif lengths.past is None:
        rows = np.arange(lengths.rows)[:, None]
        behind = keys > rows
        if window > 0:
            behind |= keys <= rows - window
        return constant(np.where(behind, LOWEST, 0.0).astype(dtype))
    else:
        batch = (static_shape(lengths.past) or ())[0]
        rows = relax.op.reshape(lengths.positions(), (batch, 1, lengths.rows, 1))
        rows = node.emit(rows)
        hidden = relax.op.greater(constant(keys), rows)
        if window > 0:
            first = relax.op.subtract(rows, relax.const(window, "int32"))
            before = relax.op.less_equal(constant(keys), node.emit(first))
            hidden = relax.op.logical_or(node.emit(hidden), node.emit(before))
    lowest, zero = relax.const(LOWEST, dtype), relax.const(0.0, dtype)
    return node.emit(relax.op.where(node.emit(hidden), lowest, zero))


def _softmax(node: Node, product: relax.Expr) -> relax.Expr:
    """Softmax of scores (B, N, S, T), with another score that no value goes with, if asked for."""
    sink, smooth = node.get(11), node.attr("smooth_softmax", -1) == 1
    if sink is None and not smooth:
        return node.emit(relax.op.nn.softmax(product, -1))
    batch, heads, rows, keys = static_shape(product) or ()
    extra = number(0.0, product) if sink is None else relax.op.reshape(sink, (1, heads, 1, 1))
    wide = node.emit(relax.op.broadcast_to(extra, (batch, heads, rows, 1)))
    weights = relax.op.nn.softmax(node.emit(relax.op.concat([product, wide], axis=3)), -1)
    return node.emit(relax.op.strided_slice(node.emit(weights), [3], [0], [keys]))


def decoder_attention(node: Node) -> list[relax.Expr | None]:
    """MultiHeadAttention with its operands in another order."""
    if node.attr("past_present_share_buffer", 0):
        raise node.unsupported("caches that past and present share are not supported")
    node.attr("output_qk")
    order = (0, 1, 2, 10, 3, 4, 5, 6, None, 9)
    inputs = [None if index is None else node.get(index) for index in order]
    return multi_head_attention(replace(node, inputs=inputs))


CONVERTERS = {
    "DecoderMaskedMultiHeadAttention": decoder_attention,
    "GroupQueryAttention": grouped_attention,
    "RotaryEmbedding": rotary_embedding,
}
