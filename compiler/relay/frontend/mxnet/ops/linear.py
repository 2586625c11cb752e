"""Dense layers and matrix products."""

from __future__ import annotations

import math

from tvm import relax

from compiler.relay import dialect

from ..node import SymbolNode

op = relax.op


def fully_connected(node: SymbolNode) -> relax.Expr:
    """x W^T + b over a matrix of rows: the flattened samples, or all that the last axis holds."""
    shape, data = node.shape(0), node[0]
    by_sample = node.flag("flatten", True)
    rows = shape[:1] if by_sample else shape[:-1]
    if by_sample and len(shape) != 2:
        data = node.emit(dialect.call("nn.batch_flatten", [data]))
    elif len(shape) != 2:
        data = node.emit(op.reshape(data, (math.prod(rows), shape[-1])))
    result = op.matmul(data, node.emit(op.permute_dims(node[1])))
    if not node.flag("no_bias", False):
        result = op.add(node.emit(result), node[2])
    if len(rows) == 1:
        return result
    return op.reshape(node.emit(result), (*rows, node.shape(1)[0]))


def dot(node: SymbolNode) -> relax.Expr:
    """Contracts the last axis of the first operand with the first axis of the second."""
    left, right = node[0], node[1]
    if node.flag("transpose_a", False):
        left = node.emit(op.permute_dims(left, _rotated(len(node.shape(0)), 1)))
    if node.flag("transpose_b", False):
        right = node.emit(op.permute_dims(right, _rotated(len(node.shape(1)), -1)))
    a, b = node.shape_of(left), node.shape_of(right)
    if len(a) <= 2 and len(b) <= 2:
        product = op.matmul(left, right)
    else:
        rows, columns = math.prod(a[:-1]), math.prod(b[1:])
        product = op.matmul(op.reshape(left, (rows, a[-1])), op.reshape(right, (b[0], columns)))
        product = op.reshape(node.emit(product), (*a[:-1], *b[1:]))
    scalar = len(a) == len(b) == 1 and not node.importer.numpy_semantics
    return op.reshape(node.emit(product), (1,)) if scalar else product


def _rotated(rank: int, by: int) -> list[int]:
    """Axes with the first moved last (1), or the last moved first (-1)."""
    return [(axis + by) % rank for axis in range(rank)]


def batch_dot(node: SymbolNode) -> relax.Expr:
    """Matrix product of the last two axes, with equal leading axes."""
    operands = []
    for index, flag in enumerate(("transpose_a", "transpose_b")):
        value, rank = node[index], len(node.shape(index))
        if node.flag(flag, False):
            axes = [*range(rank - 2), rank - 1, rank - 2]
            value = node.emit(op.permute_dims(value, axes))
        operands.append(value)
    return op.matmul(*operands)


def gemm2(node: SymbolNode) -> relax.Expr:
    """alpha times the matrix product of the last two axes."""
    if node.integer("axis", -2) != -2:
        raise node.unsupported("rows of matrices are along the axis before the last one only")
    product, alpha = batch_dot(node), node.number("alpha", 1.0)
    return product if alpha == 1 else op.multiply(node.emit(product), node.scalar(alpha))


def _interleaved(node: SymbolNode) -> tuple[tuple[int, int, int, int], relax.Expr]:
    """(length, batch, heads, size), and queries, keys and values as (length, b * h, 3, size)."""
    (length, batch, width), heads = node.shape(0), node.integer("heads")
    if heads < 1 or width % (3 * heads):
        raise node.unsupported(f"{heads} heads in a width of {width}")
    size = width // heads // 3
    parts = op.reshape(node[0], (length, batch * heads, 3, size))
    return (length, batch, heads, size), node.emit(parts)


def _part(node: SymbolNode, parts: relax.Expr, which: int) -> relax.Expr:
    """Queries, keys or values as (batch * heads, length, size)."""
    part = op.strided_slice(parts, [2], [which], [which + 1])
    return node.emit(op.permute_dims(op.squeeze(node.emit(part), [2]), [1, 0, 2]))


def attention_scores(node: SymbolNode) -> relax.Expr:
    """Scaled products of queries and keys: (batch * heads, length, length)."""
    (_, _, _, size), parts = _interleaved(node)
    queries = op.multiply(_part(node, parts, 0), node.scalar(1 / math.sqrt(size)))
    return op.matmul(queries, op.permute_dims(_part(node, parts, 1), [0, 2, 1]))


def attention_values(node: SymbolNode) -> relax.Expr:
    """Values weighted by attention: (length, batch, heads * size)."""
    (length, batch, heads, size), parts = _interleaved(node)
    mixed = node.emit(op.matmul(node[1], _part(node, parts, 2)))
    return op.reshape(op.permute_dims(mixed, [1, 0, 2]), (length, batch, heads * size))


CONVERTERS = {
    **dict.fromkeys(("FullyConnected", "_npx_fully_connected"), fully_connected),
    "dot": dot,
    **dict.fromkeys(("batch_dot", "_npx_batch_dot"), batch_dot),
    **dict.fromkeys(("_linalg_gemm2", "linalg_gemm2"), gemm2),
    "_npi_matmul": lambda node: op.matmul(node[0], node[1]),
    "_contrib_div_sqrt_dim": lambda node: op.divide(
        node[0], node.scalar(math.sqrt(node.shape(0)[-1]))
    ),
    "_contrib_interleaved_matmul_selfatt_qk": attention_scores,
    "_contrib_interleaved_matmul_selfatt_valatt": attention_values,
}
