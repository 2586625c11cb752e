"""Normalizations and dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.constants import constant, integers, static_shape
from compiler.ir.dynamic_shape import as_extent, simplified
from compiler.relay.op.shapes import broadcast_extents

from ..node import Node, dtype_of
from .elementwise import in_float32


def layer_normalization(node: Node) -> list[relax.Expr]:
    """`nn.layer_norm`; the mean and the inverse deviation where the model asks for them."""
    data, shape, dtype = node[0], node.extents(0), node.dtype(0)
    first = node.axis(-1, len(shape))
    axes = list(range(first - len(shape), 0))
    normal = shape[first:]
    known = integers(normal)
    epsilon = node.attr("epsilon", 1e-5)
    gamma = _spread(node, 1, normal)
    if node.get(2) is not None:
        beta = _spread(node, 2, normal)
    elif known is None:
        beta = relax.op.zeros([as_extent(extent) for extent in normal], dtype)
    else:
        beta = constant(np.zeros(known, dtype))
    outputs = [relax.op.nn.layer_norm(data, gamma, beta, axes, epsilon)]
    if any(node.proto.output[1:]):
        wide = data if dtype == "float32" else node.emit(relax.op.astype(data, "float32"))
        mean = node.emit(relax.op.mean(wide, axes, keepdims=True))
        centered = node.emit(relax.op.subtract(wide, mean))
        square = relax.op.multiply(centered, centered)
        variance = relax.op.mean(square, axes, keepdims=True)
        outputs += [mean, relax.op.rsqrt(relax.op.add(variance, relax.const(epsilon, "float32")))]
    return outputs


@in_float32
def mean_variance_normalization(node: Node) -> relax.Expr:
    """(x - mean) / (deviation + 1e-9)."""
    data, axes = node[0], list(node.attr("axes", (0, 2, 3)))
    centered = node.emit(relax.op.subtract(data, relax.op.mean(data, axes, keepdims=True)))
    variance = relax.op.mean(relax.op.multiply(centered, centered), axes, keepdims=True)
    deviation = relax.op.add(relax.op.sqrt(variance), relax.const(1e-9, node.dtype(0)))
    return relax.op.divide(centered, deviation)


def _spread(node: Node, index: int, normal: list[Any]) -> relax.Expr:
    """Scale or bias with the normalized shape, as `nn.layer_norm` needs it."""
    shape, known = static_shape(node[index]), integers(normal)
    if shape is None or known is None or math.prod(shape) != math.prod(known):
        return node.emit(broadcast_extents(node[index], normal))
    return node[index] if shape == known else relax.op.reshape(node[index], known)


def rms_normalization(node: Node) -> relax.Expr:
    """x / sqrt(mean(x * x) + epsilon) * scale."""
    data, shape = node[0], node.extents(0)
    axes = list(range(node.axis(-1, len(shape)), len(shape)))
    wide = "float32" if node.attr("stash_type", 1) == 1 else node.dtype(0)
    value = data if node.dtype(0) == wide else node.emit(relax.op.astype(data, wide))
    square = relax.op.mean(relax.op.multiply(value, value), axes, keepdims=True)
    epsilon = relax.const(node.attr("epsilon", 1e-5), wide)
    normal = relax.op.multiply(value, relax.op.rsqrt(relax.op.add(square, epsilon)))
    if wide != node.dtype(1):
        normal = relax.op.astype(normal, node.dtype(1))
    return relax.op.multiply(normal, node[1])


@in_float32
def local_response_normalization(node: Node) -> relax.Expr:
    """x / (bias + alpha * mean(x * x)) ** beta, the mean over channels nearby, zeros beyond."""
    data, shape, size = node[0], node.extents(0), node.attr("size")
    if any(isinstance(extent, int) and extent == 0 for extent in shape) or len(shape) < 2:
        raise node.unsupported(f"the operand's shape is {shape}")
    bias, alpha, beta = (
        relax.const(node.attr(name, default), node.dtype(0))
        for name, default in (("bias", 1.0), ("alpha", 1e-4), ("beta", 0.75))
    )
    images = (shape[0], 1, shape[1], simplified(math.prod(shape[2:])))
    squares = relax.op.reshape(node.emit(relax.op.multiply(data, data)), images)
    pads = [(size - 1) // 2, 0, size // 2, 0]
    means = relax.op.nn.avg_pool2d(
        node.emit(squares), (size, 1), padding=pads, count_include_pad=True
    )
    means = relax.op.reshape(node.emit(means), shape)
    scale = relax.op.add(bias, relax.op.multiply(alpha, node.emit(means)))
    return relax.op.divide(data, relax.op.power(node.emit(scale), beta))


@in_float32
def lp_normalization(node: Node) -> relax.Expr:
    """x / norm(x) along an axis, 0 where the norm is 0."""
    data, axis = node[0], [node.attr("axis", -1)]
    if node.attr("p", 2) == 1:
        norm = relax.op.sum(relax.op.abs(data), axis, keepdims=True)
    else:
        norm = relax.op.sqrt(relax.op.sum(relax.op.multiply(data, data), axis, keepdims=True))
    norm = node.emit(norm)
    zero = relax.const(0.0, node.dtype(0))
    return relax.op.where(relax.op.equal(norm, zero), zero, relax.op.divide(data, norm))


def group_normalization(node: Node) -> relax.Expr:
    """Group norm with a scale and a shift for each channel, before opset 21 for each group.

    The function that defines it takes the mean of squares less the square of the mean, which
    cancels where the mean is large.
    """
    extents, groups = node.extents(0), node.required("num_groups")
    channels = extents[1]
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise node.unsupported(f"num_groups={groups} does not divide the channels, {channels}")
    wide = "float32" if node.attr("stash_type", 1) == 1 else node.dtype(0)
    operands = [node.emit(relax.op.astype(node[index], wide)) for index in range(3)]
    if node.opset < 21:
        operands[1:] = [node.emit(relax.op.repeat(e, channels // groups, 0)) for e in operands[1:]]
    axes, epsilon = list(range(2, len(extents))), node.attr("epsilon", 1e-5)
    normal = node.emit(relax.op.nn.group_norm(*operands, groups, 1, axes, epsilon))
    return relax.op.astype(normal, node.dtype(0))


def batch_normalization(node: Node) -> list[relax.Expr] | None:
    """Training mode: the batch's own statistics, and the moving ones updated."""
    if node.opset < 9 and not node.attr("spatial", 1):
        return [_batch_norm_of_elements(node)]
    if len(node.extents(0)) > 1:  # the weights have the number of channels
        node.inputs[0] = node.expect_extents(0, {1: node.shape(1)[0]})
    if not node.attr("training_mode", 0):
        return None
    data, shape, dtype = node[0], node.shape(0), node.dtype(0)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    along = [1, shape[1]] + [1] * (len(shape) - 2)
    mean = node.emit(relax.op.mean(data, axes))
    centered = node.emit(relax.op.subtract(data, relax.op.reshape(mean, along)))
    variance = node.emit(relax.op.mean(relax.op.multiply(centered, centered), axes))
    epsilon = relax.const(node.attr("epsilon", 1e-5), dtype)
    scale = relax.op.multiply(node[1], relax.op.rsqrt(relax.op.add(variance, epsilon)))
    result = relax.op.add(
        relax.op.multiply(centered, relax.op.reshape(scale, along)),
        relax.op.reshape(node[2], along),
    )
    keep, new = node.attr("momentum", 0.9), 1 - node.attr("momentum", 0.9)
    moved = [
        relax.op.add(
            relax.op.multiply(old, relax.const(keep, dtype_of(old))),
            relax.op.multiply(relax.op.astype(now, dtype_of(old)), relax.const(new, dtype_of(old))),
        )
        for old, now in ((node[3], mean), (node[4], variance))
    ]
    return [result, *moved]


def _batch_norm_of_elements(node: Node) -> relax.Expr:
    """`spatial=0`: every element of a sample has a mean, a variance, a scale and a bias."""
    data, (scale, bias, mean, variance) = node[0], (node[i] for i in range(1, 5))
    epsilon = relax.const(node.attr("epsilon", 1e-5), node.dtype(0))
    factor = relax.op.multiply(scale, relax.op.rsqrt(relax.op.add(variance, epsilon)))
    return relax.op.add(relax.op.multiply(relax.op.subtract(data, mean), factor), bias)


def softmax(node: Node) -> relax.Expr | None:
    """TVM's converter, where there are elements."""
    return node[0] if 0 in (static_shape(node[0]) or ()) else None


def hardmax(node: Node) -> relax.Expr | None:
    """Whether an element is the first largest along an axis; TVM's converter takes static ones.

    Before opset 13 the axes from `axis` on are one.
    """
    extents = node.extents(0)
    if static_shape(node[0]) is not None:
        return softmax(node)
    flat = node.opset < 13
    axis = along = node.axis(1 if flat else -1, len(extents) + flat)
    data = node[0]
    if flat:
        parts = (extents[:axis], extents[axis:])
        shape, along = [as_extent(simplified(math.prod(part))) for part in parts], 1
        data = node.emit(relax.op.reshape(data, shape))
    # one more element, because an empty axis has no largest one
    beyond = [width for axis in range(data.ty.ndim) for width in (0, int(axis == along))]
    longer = node.emit(relax.op.nn.pad(data, beyond, "constant", -math.inf))
    largest = node.emit(relax.op.argmax(longer, along, keepdims=True))
    places = node.emit(relax.op.arange(0, data.ty.shape[along], 1, "int64"))
    others = [each for each in range(data.ty.ndim) if each != along]
    is_largest = relax.op.equal(largest, relax.op.expand_dims(places, others))
    result = relax.op.astype(node.emit(is_largest), node.dtype(0))
    return relax.op.reshape(result, extents) if flat else result


CONVERTERS = {
    **dict.fromkeys(("LogSoftmax", "Softmax"), softmax),
    "Hardmax": hardmax,
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    "LRN": local_response_normalization,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
    "SimplifiedLayerNormalization": rms_normalization,  # onnxruntime's name
}
