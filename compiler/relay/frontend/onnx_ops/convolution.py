"""Convolutions with automatic padding, explicit padding, and tiling."""

from __future__ import annotations

import math

import numpy as np
import onnx
from tvm import relax

from compiler.graph.constants import constant, static_shape

from ..onnx_node import Node

_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
"""What `relax.op.nn.pad` calls the modes of Pad; "wrap" is left to TVM's importer."""


def convolution(node: Node) -> relax.Expr | None:
    """Conv with `auto_pad`: the padding as attribute of the convolution; others are TVM's."""
    if node.attr("auto_pad", "NOTSET") == "NOTSET":
        return None
    return with_pads(node, automatic_pads(node, node.shape(1)[2:]))


def automatic_pads(node: Node, kernel: tuple[int, ...]) -> list[int]:
    """The pads that `auto_pad` stands for: none, or as many as a result of
    ceil(extent / stride) takes."""
    mode, shape = node.attr("auto_pad"), node.shape(0)[2:]
    rank = len(shape)
    strides = node.attr("strides", (1,) * rank)
    dilations = node.attr("dilations", (1,) * rank)
    before, after = [0] * rank, [0] * rank
    if mode != "VALID":
        for axis in range(rank):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            steps = -(-shape[axis] // strides[axis])
            total = max((steps - 1) * strides[axis] + reach - shape[axis], 0)
            small, large = total // 2, total - total // 2
            before[axis], after[axis] = (small, large) if mode == "SAME_UPPER" else (large, small)
    return before + after


def transposed_convolution(node: Node) -> relax.Expr | None:
    """ConvTranspose to a given shape: the pads that lead to it; others are TVM's."""
    if node.attr("output_shape") is None:
        return None
    shape, kernel = node.shape(0)[2:], node.shape(1)[2:]
    rank = len(shape)
    wanted = node.attr("output_shape")[-rank:]
    strides = node.attr("strides", (1,) * rank)
    dilations = node.attr("dilations", (1,) * rank)
    extra = list(node.attr("output_padding", (0,) * rank))
    before, after = [0] * rank, [0] * rank
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (shape[axis] - 1) + extra[axis] + reach - wanted[axis]
        extra[axis] += max(-total, 0)
        small = max(total, 0) // 2
        large = max(total, 0) - small
        upper = node.attr("auto_pad", "NOTSET") == "SAME_UPPER"
        before[axis], after[axis] = (small, large) if upper else (large, small)
    return with_pads(node, before + after, output_padding=extra)


def with_pads(node: Node, pads: list[int], **others: list[int]) -> relax.Expr:
    """The node itself with these pads, and other attributes, for what says them indirectly."""
    replaced = {"pads": pads, **others}
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    dropped = {"auto_pad", "output_shape", *replaced}
    kept = [entry for entry in node.proto.attribute if entry.name not in dropped]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    for name, value in replaced.items():
        proto.attribute.append(onnx.helper.make_attribute(name, value))
    return node.importer.convert_node(proto, node.scope)[0]


def pad(node: Node) -> relax.Expr | None:
    """Padding by a known value, by the edge or by a reflection; negative pads cut off."""
    mode = _PAD_MODES.get(node.attr("mode", "constant"))
    if mode is None:
        return None
    shape = node.shape(0)
    if node.opset < 11:
        pads, value = list(node.attr("pads")), float(node.attr("value", 0.0))
    else:
        pads = node.value(1, "the pads").ravel().tolist()
        given = node.get(2)
        value = 0.0 if given is None else float(node.value(2, "the value").reshape(-1)[0])
    axes = list(range(len(shape)))
    if node.opset >= 18 and node.get(3) is not None:
        axes = [int(axis) % len(shape) for axis in node.value(3, "the axes").ravel()]
    before, after = [0] * len(shape), [0] * len(shape)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[i]), int(pads[i + len(axes)])
    data = node[0]
    cut = [axis for axis in range(len(shape)) if before[axis] < 0 or after[axis] < 0]
    if cut:
        begin = [max(-before[axis], 0) for axis in cut]
        end = [shape[axis] - max(-after[axis], 0) for axis in cut]
        data = node.emit(relax.op.strided_slice(data, cut, begin, end))
    widths = [max(width, 0) for pair in zip(before, after) for width in pair]
    if not any(widths):
        return data
    if mode != "constant" and (node.dtype(0) == "bool" or math.prod(shape) == 0 or cut):
        return None
    if node.dtype(0) == "bool" or math.prod(shape) == 0:
        target = [
            extent + max(b, 0) + max(a, 0)
            for extent, b, a in zip(static_shape(data) or (), before, after)
        ]
        if math.prod(shape) == 0:
            return constant(np.full(target, value, node.dtype(0)))
        bits = relax.op.nn.pad(relax.op.astype(data, "int8"), widths, "constant", value)
        return relax.op.astype(bits, "bool")
    return relax.op.nn.pad(data, widths, mode, value)


def tile(node: Node) -> relax.Expr:
    """Repetition of the whole tensor along its axes."""
    return relax.op.tile(node[0], [int(count) for count in node.value(1, "the repeats").ravel()])


CONVERTERS = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Pad": pad,
    "Tile": tile,
}
