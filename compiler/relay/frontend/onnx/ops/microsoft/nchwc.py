"""Operators of com.microsoft.nchwc, which onnxruntime's layout optimization writes.

Their tensors hold channels in blocks, and as many as fill whole blocks; they have the shape of
plain NCHW tensors, as which they are imported. Only the weights, which are stored in their order,
are brought back. How large a block is depends on the CPU that optimized the model and is not
written in it. It follows from channels that do not fill blocks of 16, or from how many were added
to those that the model returns; where either may be meant, the model is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from tvm import relax

from compiler.ir.constants import constant

from ...node import Node
from .fused import POOLING, attributes, channels_first, channels_last, fused_conv

DOMAIN = "com.microsoft.nchwc"

_SAME_CHANNELS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Upsample")


def _block(node: Node) -> int:
    """How many channels a block has."""
    graph: onnx.GraphProto = node.importer.model.proto.graph
    stored = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    makers = {name: each for each in graph.node for name in each.output}
    possible = {8, 16}
    for each in graph.node:
        if each.domain != DOMAIN:
            continue
        if each.op_type == "Conv":
            channels = stored.get(each.input[1], 0)
            possible = {block for block in possible if channels % block == 0}
        elif each.op_type == "ReorderOutput":
            wanted = next((entry.i for entry in each.attribute if entry.name == "channels"), 0)
            maker = makers.get(each.input[0]) if wanted else None
            while maker is not None and maker.op_type in _SAME_CHANNELS:
                maker = makers.get(maker.input[0])
            if maker is not None and (maker.domain, maker.op_type) == (DOMAIN, "Conv"):
                channels = stored.get(maker.input[1], 0)
                possible = {block for block in possible if -wanted % block == channels - wanted}
    if len(possible) != 1:
        raise node.unsupported(
            "its weights are in blocks of 8 or of 16 channels, which depends on the CPU that "
            "optimized the model, and nothing in the model says which; optimize it at the level "
            "ORT_ENABLE_EXTENDED instead"
        )
    return possible.pop()


def _plain_weights(node: Node) -> relax.Expr:
    """The weights OIHW, of which the blocks of O, and of I if there is a whole one, are last."""
    shape, block = node.shape(1), _block(node)
    out, inner, *space = shape
    axes = len(space)
    if inner % block:
        blocked = node.emit(relax.op.reshape(node[1], (out // block, inner, *space, block)))
        order = [0, axes + 2, *range(1, axes + 2)]
    else:
        blocks = (out // block, inner // block, *space, block, block)
        blocked = node.emit(relax.op.reshape(node[1], blocks))
        order = [0, axes + 3, 1, axes + 2, *range(2, axes + 2)]
    return node.emit(relax.op.reshape(node.emit(relax.op.permute_dims(blocked, order)), shape))


def convolution(node: Node) -> relax.Expr:
    """Convolution plus a bias, plus a tensor of the result's shape, activated."""
    return fused_conv(replace(node, inputs=[node[0], _plain_weights(node), *node.inputs[2:]]))


def reorder_input(node: Node) -> relax.Expr:
    """The operand with channels of zeros behind, so that they fill blocks."""
    data = channels_first(node, node[0]) if node.attr("channels_last", 0) else node[0]
    shape = node.shape(0)
    channels = shape[-1] if node.attr("channels_last", 0) else shape[1]
    missing = -channels % _block(node)
    if not missing:
        return data
    pads = constant(np.array([0, 0, 0, 0, 0, missing, 0, 0]))
    return node.call("Pad", data, pads)


def reorder_output(node: Node) -> relax.Expr:
    """The first channels."""
    channels = node.attr("channels", 0) or node.shape(0)[1]
    data = node[0]
    if channels != node.shape(0)[1]:
        data = node.emit(relax.op.strided_slice(data, [1], [0], [channels]))
    return channels_last(node, data) if node.attr("channels_last", 0) else data


def _same(name: str, attrs: tuple[str, ...] = ()) -> Callable[[Node], relax.Expr]:
    """A converter to ONNX's operator of that name, with these attributes."""

    def convert(node: Node) -> relax.Expr:
        node.attr("storage_order")  # of indices, which MaxPool does not return
        return node.call(name, node[0], **attributes(node, attrs))

    convert.__doc__ = f"{name}."
    return convert


def upsample(node: Node) -> relax.Expr:
    """Resize by whole factors."""
    mode = node.attr("mode", "nearest")
    return node.call(
        "Resize",
        node[0],
        None,
        constant(np.array(node.attr("scales"), "float32")),
        mode=mode,
        coordinate_transformation_mode=node.attr("coordinate_transformation_mode", "asymmetric"),
        nearest_mode="floor" if mode == "nearest" else None,
    )


CONVERTERS = {
    "AveragePool": _same("AveragePool", (*POOLING, "count_include_pad")),
    "Conv": convolution,
    "GlobalAveragePool": _same("GlobalAveragePool"),
    "GlobalMaxPool": _same("GlobalMaxPool"),
    "MaxPool": _same("MaxPool", POOLING),
    "ReorderInput": reorder_input,
    "ReorderOutput": reorder_output,
    "Upsample": upsample,
}
