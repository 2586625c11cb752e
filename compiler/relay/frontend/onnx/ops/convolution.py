"""Convolutions with automatic padding, explicit padding, and tiling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx

from compiler.ir.constants import constant, integers, static_shape
from compiler.ir.dynamic_shape import as_extent, simplified
from compiler.relay.op import registry
from compiler.relay.op.shapes import same_extent
from compiler.relay.op.slicing import slice_of_symbols
from compiler.relay.op.te_op import kernel as as_operator

from ..node import Node, constant_value
from ..shape_expr import shape_of
from . import dynamic_operands

_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}
"""Modes of Pad in `relax.op.nn.pad`."""


def convolution(node: Node) -> relax.Expr | None:
    """Conv with `auto_pad`: the padding as attribute of the convolution; others are TVM's."""
    if node.attr("auto_pad", "NOTSET") == "NOTSET":
        return None
    return with_automatic_pads(node, node.shape(1)[2:])


def with_automatic_pads(node: Node, kernel: Sequence[int], fill: float = 0.0) -> relax.Expr:
    """The node with the pads of `auto_pad`; the data is padded by `fill` if they are dynamic."""
    pads = automatic_pads(node, kernel)
    if all(isinstance(width, int) for width in pads):
        return with_pads(node, pads)
    return with_pads(node, [0] * len(pads), padded(node, node[0], pads, fill))


def padded(node: Node, data: relax.Expr, pads: Sequence[Any], fill: float) -> relax.Expr:
    """Spatial axes padded by numbers or extents: before each axis, then after each."""
    rank = len(pads) // 2
    extents = shape_of(data) or []
    whole = [sum(each, tirx.const(0, "int64")) for each in zip(extents[2:], pads, pads[rank:])]
    shape = relax.ShapeExpr([*extents[:2], *map(as_extent, map(simplified, whole))])
    before = relax.ShapeExpr([as_extent(each) for each in (0, 0, *pads[:rank])])
    return node.emit(_pad_by_extents_kernel(data, before, shape, fill=fill))


def _pad_by_extents(
    data: te.Tensor, before: Sequence[Any], shape: Sequence[Any], fill: float
) -> te.Tensor:
    def value(*at: Any) -> Any:
        places = [index - first for index, first in zip(at, before)]
        inside = [tirx.And(each >= 0, each < end) for each, end in zip(places, data.shape)]
        return tirx.if_then_else(tirx.all(*inside), data(*places), edge)

    least = fill == -math.inf and "int" in str(data.dtype)
    edge = tirx.min_value(data.dtype) if least else tirx.const(fill, data.dtype)

    return te.compute(list(shape), value, name="pad_by_extents")


_pad_by_extents_kernel = as_operator("pad_by_extents", _pad_by_extents)


def automatic_pads(node: Node, kernel: Sequence[int]) -> list[Any]:
    """The pads of `auto_pad`: none, or what a result of ceil(extent / stride) takes.

    They are expressions if the extent is dynamic and the stride is not 1.
    """
    mode, shape = node.attr("auto_pad"), node.extents(0)[2:]
    rank = len(shape)
    strides, dilations, _ = node.window(rank)
    before, after = [0] * rank, [0] * rank
    if mode != "VALID":
        for axis in range(rank):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            steps = as_extent(shape[axis] + strides[axis] - 1) // strides[axis]
            total = as_extent((steps - 1) * strides[axis] + reach - shape[axis])
            total = simplified(tirx.max(total, tirx.const(0, "int64")))
            small = simplified(as_extent(total) // 2)
            large = simplified(as_extent(total - small))
            before[axis], after[axis] = (small, large) if mode == "SAME_UPPER" else (large, small)
    return before + after


def transposed_convolution(node: Node) -> relax.Expr | None:
    """ConvTranspose to a given shape: the pads that lead to it; others are TVM's."""
    if node.attr("output_shape") is None:
        if integers(node.extents(1)[2:]) is None:
            node.shape(1)  # raises
        return None
    shape, kernel = node.shape(0)[2:], node.shape(1)[2:]
    rank = len(shape)
    wanted = node.attr("output_shape")[-rank:]
    strides, dilations, _ = node.window(rank)
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


def with_pads(
    node: Node,
    pads: list[int],
    data: relax.Expr | None = None,
    outputs: int | None = None,
    **others: list[int] | int,
) -> relax.Expr:
    """The node with these pads and attributes, and its first `outputs` outputs (default all).

    `data` replaces input 0.
    """
    replaced = {"pads": pads, **others}
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    if outputs is not None:
        del proto.output[outputs:]
    dropped = {"auto_pad", "output_shape", *replaced}
    kept = [entry for entry in node.proto.attribute if entry.name not in dropped]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    for name, value in replaced.items():
        proto.attribute.append(onnx.helper.make_attribute(name, value))
    scope = node.scope if data is None else {**node.scope, proto.input[0]: data}
    return node.importer.convert_node(proto, scope)[0]


def pad(node: Node) -> relax.Expr:
    """Padding by a value, by the edge, by a reflection or all around; negative pads cut off."""
    if node.attr("mode", "constant") not in _PAD_MODES:
        raise node.unsupported(f"the mode {node.attr('mode')!r} is not known")
    mode = _PAD_MODES[node.attr("mode", "constant")]
    shape = node.extents(0)
    if node.opset >= 11 and any(
        value is not None and constant_value(value) is None for value in (node.get(1), node.get(3))
    ):
        return _pad_at_run_time(node, mode)
    before, after = _pad_widths(node, len(shape))
    data = node[0]
    cut = [axis for axis in range(len(shape)) if before[axis] < 0 or after[axis] < 0]
    if cut:
        rest = [shape[axis] + min(before[axis], 0) + min(after[axis], 0) for axis in cut]
        unsure = any(not isinstance(each, int) or each < 0 for each in rest)
        if unsure and mode == "constant" and node.dtype(0) != "bool":
            value = _pad_value(node)
            if value is not None:  # widths (1, -1) keep an open extent, also where it is 0
                return _padded(data, before, after, value)
        begin = [max(-before[axis], 0) for axis in cut]
        if integers(shape) is None:
            ends = [min(after[axis], 0) or shape[axis] for axis in cut]
            box = {axis: (first, end, 1) for axis, first, end in zip(cut, begin, ends)}
            data = node.emit(slice_of_symbols(data, box))
        else:
            ends = [max(shape[axis] + min(after[axis], 0), 0) for axis in cut]
            data = node.emit(relax.op.strided_slice(data, cut, begin, ends))
    before, after = ([max(width, 0) for width in widths] for widths in (before, after))
    if not any(before) and not any(after):
        return data
    if mode == "constant":
        return _pad_by_value(node, data, before, after)
    if integers(shape) is not None and math.prod(shape) == 0:
        raise node.unsupported("an empty tensor has no elements that padding could repeat")
    for extent, *widths in zip(static_shape(data) or (), before, after):
        if mode == "reflect" and max(widths) >= extent:
            raise node.unsupported(f"an axis of {extent} elements can't be padded by {max(widths)}")
    dtype = node.dtype(0)
    bits = relax.op.astype(data, "int8") if dtype == "bool" else data
    around = [width for pair in zip(before, after) for width in pair]
    padded = relax.op.nn.pad(bits, around, mode)
    return relax.op.astype(padded, "bool") if dtype == "bool" else padded


def _pad_at_run_time(node: Node, mode: str) -> relax.Expr:
    """Padding whose widths, or axes, are computed while the model runs."""
    dtype = node.dtype(0)
    axes = node.get(3) if node.opset >= 18 else None
    rank = len(node.extents(0)) if axes is None else node.shape(3)[0]
    if node.shape(1) != (2 * rank,):
        raise node.unsupported(f"pads of shape {node.shape(1)} do not fit {rank} axes")
    if node.get(2) is None:
        fill = constant(np.zeros((), dtype))
    else:
        fill = node.emit(relax.op.reshape(node[2], []))
    return dynamic_operands.pad(node, node[1], axes, fill, mode)


def _pad_widths(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """Pads in front of and behind each axis; they decide the result's shape."""
    axes = list(range(rank))
    if node.opset < 11:
        pads = list(node.attr("pads"))
    else:
        pads = node.value(1, "the pads").ravel().tolist()
        if node.opset >= 18 and node.get(3) is not None:
            axes = [int(axis) % rank for axis in node.value(3, "the axes").ravel()]
    if len(pads) != 2 * len(axes):
        raise node.unsupported(f"{len(pads)} pads do not fit {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[i]), int(pads[i + len(axes)])
    return before, after


def _pad_value(node: Node) -> np.ndarray | None:
    """The value that pads, None if it is computed."""
    if node.opset < 11:
        return np.array(node.attr("value", 0.0))
    return np.zeros(()) if node.get(2) is None else constant_value(node[2])


def _padded(data: relax.Expr, before: list[int], after: list[int], value: np.ndarray) -> relax.Expr:
    around = [width for pair in zip(before, after) for width in pair]
    return relax.op.nn.pad(data, around, "constant", value.reshape(-1)[0].item())


def _pad_by_value(node: Node, data: relax.Expr, before: list[int], after: list[int]) -> relax.Expr:
    """Padding by a value, which may be known only at run time."""
    dtype, value = node.dtype(0), _pad_value(node)
    shape = shape_of(data) or []
    is_empty = any(same_extent(extent, 0) for extent in shape)
    if value is not None and dtype != "bool" and not is_empty:
        return _padded(data, before, after, value)
    if value is not None:
        fill = constant(value.reshape(-1)[0].astype(dtype))
    else:
        fill = node.emit(relax.op.reshape(node[2], []))
    for axis, widths in enumerate(zip(before, after)):
        if any(widths):
            extents = shape_of(data) or []
            edges = [
                [relax.op.full((*extents[:axis], width, *extents[axis + 1 :]), fill)] * (width > 0)
                for width in widths
            ]
            data = node.emit(relax.op.concat([*edges[0], data, *edges[1]], axis))
    return data


def tile(node: Node) -> relax.Expr:
    counts = node.elements(1)
    if counts is None:
        node.shape(1)  # how many there are must be known
        return registry.call("dyn.tile", [node[0], dynamic_operands.as_int64(node, node[1])], {})
    repeats = counts.ravel().tolist()
    if any(each is None for each in repeats):
        values = dynamic_operands.as_int64(node, node[1])
        repeats = dynamic_operands.extents_of(node, values, len(repeats), repeats)
    if all(isinstance(each, int) for each in repeats):
        return relax.op.tile(node[0], repeats)
    return registry.call("tile", [node[0]], {"reps": repeats})


CONVERTERS = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Pad": pad,
    "Tile": tile,
}
