"""Normalizations."""

from __future__ import annotations

import numpy as np
from tvm import relax

from compiler.ir.constants import constant

from ..node import SymbolNode

op = relax.op


def batch_norm(node: SymbolNode) -> relax.Expr:
    """With the moving statistics; `fix_gamma`, the default, reads gamma as 1."""
    shape = node.shape(0)
    axis = node.axis(node.integer("axis", 1), len(shape))
    if node.flag("output_mean_var", False):
        raise node.unsupported("output_mean_var")
    if node.flag("fix_gamma", True):
        gamma = constant(np.ones(shape[axis], node.dtype(3)))
    else:
        gamma = node[1]
    result = op.nn.batch_norm(
        node[0],
        gamma,
        node[2],
        node[3],
        node[4],
        axis,
        epsilon=node.number("eps", 1e-3),
        training=False,
    )
    return relax.TupleGetItem(node.emit(result), 0)


def layer_norm(node: SymbolNode) -> relax.Expr:
    _refuse_statistics(node)
    rank = len(node.shape(0))
    axis = node.axis(node.integer("axis", -1), rank)
    epsilon = node.number("eps", 1e-5)
    return op.nn.layer_norm(node[0], node[1], node[2], [axis - rank], epsilon)


def instance_norm(node: SymbolNode) -> relax.Expr:
    """Over the spatial axes of every channel of every sample."""
    shape = node.shape(0)
    normal = _normalized(node, node[0], list(range(2, len(shape))), node.number("eps", 1e-3))
    along = (1, shape[1]) + (1,) * (len(shape) - 2)
    return _scaled(node, normal, along)


def group_norm(node: SymbolNode) -> relax.Expr:
    """Over groups of channels; gamma and beta have one value per channel or per group."""
    _refuse_statistics(node)
    shape, groups = node.shape(0), node.integer("num_groups", 1)
    if groups < 1 or shape[1] % groups:
        raise node.unsupported(f"{groups} groups of {shape[1]} channels")
    inner = (shape[0], groups, shape[1] // groups, *shape[2:])
    grouped = node.emit(op.reshape(node[0], inner))
    normal = _normalized(node, grouped, list(range(2, len(inner))), node.number("eps", 1e-5))
    if node.shape(1) == (groups,) and groups != shape[1]:
        scaled = _scaled(node, normal, (1, groups) + (1,) * (len(inner) - 2))
        return op.reshape(node.emit(scaled), shape)
    normal = node.emit(op.reshape(normal, shape))
    return _scaled(node, normal, (1, shape[1]) + (1,) * (len(shape) - 2))


def _refuse_statistics(node: SymbolNode) -> None:
    if node.flag("output_mean_var", False):
        raise node.unsupported("output_mean_var")


def _normalized(node: SymbolNode, data: relax.Expr, axes: list[int], epsilon: float) -> relax.Expr:
    mean = node.emit(op.mean(data, axes, keepdims=True))
    centered = node.emit(op.subtract(data, mean))
    variance = op.mean(op.multiply(centered, centered), axes, keepdims=True)
    deviation = op.rsqrt(op.add(variance, node.scalar(epsilon)))
    return node.emit(op.multiply(centered, deviation))


def _scaled(node: SymbolNode, normal: relax.Expr, along: tuple[int, ...]) -> relax.Expr:
    scaled = op.multiply(normal, op.reshape(node[1], along))
    return op.add(scaled, op.reshape(node[2], along))


def local_response_norm(node: SymbolNode) -> relax.Expr:
    """x * (knorm + alpha * mean of the squares of nsize neighboring channels) ** -beta."""
    shape, size = node.shape(0), node.integer("nsize")
    if len(shape) != 4 or size < 1 or size % 2 == 0:
        raise node.unsupported(f"nsize {size} on data of shape {shape}; it must be odd")
    square = op.reshape(op.multiply(node[0], node[0]), (shape[0], 1, shape[1], shape[2] * shape[3]))
    half = size // 2
    mean = op.nn.avg_pool2d(
        node.emit(square), (size, 1), padding=(half, 0, half, 0), count_include_pad=True
    )
    norm = op.multiply(op.reshape(node.emit(mean), shape), node.scalar(node.number("alpha", 1e-4)))
    norm = op.add(norm, node.scalar(node.number("knorm", 2.0)))
    return op.multiply(node[0], op.power(norm, node.scalar(-node.number("beta", 0.75))))


def l2_normalization(node: SymbolNode) -> relax.Expr:
    """x / sqrt(sum(x * x) + eps) over a sample, the channels, or the spatial axes."""
    rank, mode = len(node.shape(0)), node.text("mode", "instance")
    modes = {"instance": range(1, rank), "channel": range(1, 2), "spatial": range(2, rank)}
    if mode not in modes:
        raise node.unsupported(f"mode {mode!r}")
    total = op.sum(op.multiply(node[0], node[0]), list(modes[mode]), keepdims=True)
    norm = op.sqrt(op.add(total, node.scalar(node.number("eps", 1e-10))))
    return op.divide(node[0], norm)


CONVERTERS = {
    **{name: batch_norm for name in ("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm")},
    "_npx_batch_norm": batch_norm,
    "GroupNorm": group_norm,
    "InstanceNorm": instance_norm,
    "L2Normalization": l2_normalization,
    **dict.fromkeys(("LayerNorm", "_npx_layer_norm"), layer_norm),
    "LRN": local_response_norm,
}
